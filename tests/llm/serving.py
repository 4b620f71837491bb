"""Serve one policy in several ways behind one interface, and compute the policy's own values.

vLLM is tried when the variable CUDAL1_VLLM_PYTHON names an interpreter that has it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cudal1.candidate import Completion
from cudal1.llm.local import LocalProvider
from cudal1.llm.openai.openai_api import OpenAIProvider
from cudal1.llm.provider import Exchange, Provider, Receipts, Request
from cudal1.llm.server import free_port, serving
from cudal1.llm.vllm import Endpoint, VllmProvider
from cudal1.settings.provider_settings import LocalSettings, OpenAISettings, VllmSettings
from cudal1.train.policy import EMBEDDED, Sampler, fingerprint
from tests.llm.receipts import Kept

VLLM_PYTHON = os.environ.get("CUDAL1_VLLM_PYTHON")
START_TIMEOUT_S = 600.0
CONCURRENCY = 8


class Way:
    """One way of serving the embedded policy, up and running."""

    def __init__(
        self,
        provider_with: Callable[..., Provider],
        opened: Callable[[Any, Receipts], AbstractContextManager[Exchange]],
    ) -> None:
        self.provider_with = provider_with
        """A function that makes a provider for a temperature, top_p and max_tokens."""
        self._opened = opened

    def answers(
        self, requests_to: Callable[[Provider], Sequence[Request]], **drawn: Any
    ) -> list[Completion]:
        """Return completions in the order of the requests, all of which wait at the same time."""
        provider = self.provider_with(**drawn)
        requests = requests_to(provider)
        with self._opened(provider, Kept()) as exchange:
            for request in requests:
                exchange.ask(request)
            found = {answer.id: answer for answer in (exchange.answer() for _ in requests)}
        return [found[request.id] for request in requests]


@contextmanager
def in_this_process(_: Path) -> Generator[Way]:
    """Serve with transformers in this process, through `LocalProvider`."""
    sampler = Sampler(EMBEDDED)

    class Loaded:
        def __call__(self, folder: Path, /) -> Sampler:
            return sampler

        def fingerprint(self, folder: Path, /) -> str:
            return sampler.id

    def provider_with(**drawn: Any) -> LocalProvider:
        settings = LocalSettings(kind="local", path=str(EMBEDDED), batch_size=CONCURRENCY, **drawn)
        return LocalProvider("local", settings, Loaded())

    yield Way(provider_with, LocalProvider.open)


@contextmanager
def by_transformers(folder: Path) -> Generator[Way]:
    """Serve with `transformers serve`, through `OpenAIProvider`: any running server, by URL.

    The server takes our policy for a Qwen. It would look for `<|im_start|>` to tell the answer from
    the prompt, and return both. So a copy of the policy says where an answer begins; its weights,
    tokenizer and chat template are the shipped ones.
    """
    policy = folder / "policy"
    shutil.copytree(EMBEDDED, policy)
    path = policy / "tokenizer_config.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    described["response_template"] = {
        "start_anchor": "<|assistant|>\n",
        "fields": {"content": {"close": "<|end|>", "content": "text"}},
    }
    path.write_text(json.dumps(described), encoding="utf-8")
    port = free_port()
    command = [
        str(Path(sys.executable).with_name("transformers")),
        "serve",
        str(policy),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--device",
        "cpu",
        "--dtype",
        "float32",
    ]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder)}
    with serving(
        "transformers serve", command, port=port, env=env, start_timeout_s=START_TIMEOUT_S
    ) as server:

        def provider_with(**drawn: Any) -> OpenAIProvider:
            return OpenAIProvider("url", endpoint_settings(f"{server.url}/v1", policy, **drawn))

        yield Way(provider_with, OpenAIProvider.open)


def endpoint_settings(base_url: str, policy: Path, **drawn: Any) -> OpenAISettings:
    """Return settings of a server that costs nothing and knows the policy by its path."""
    values: dict[str, Any] = {
        "kind": "openai",
        "model": str(policy),
        "base_url": base_url,
        "api_key_env": None,
        "max_completion_tokens": None,
        "reasoning_effort": None,
        "usd_per_million_prompt_tokens": 0.0,
        "usd_per_million_cached_prompt_tokens": None,
        "usd_per_million_completion_tokens": 0.0,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "budget_usd": None,
        "concurrency": CONCURRENCY,
        "timeout_s": 300.0,
        "max_retries": 0,
        **drawn,
    }
    return OpenAISettings(**values)


@contextmanager
def by_vllm(_: Path) -> Generator[Way]:
    """Serve with vLLM, through `VllmProvider`."""
    if VLLM_PYTHON is None:
        pytest.skip("vLLM: run `make vllm`, then set CUDAL1_VLLM_PYTHON=.venv-vllm/bin/python")

    def provider_with(**drawn: Any) -> VllmProvider:
        settings = VllmSettings(
            kind="vllm",
            path=str(EMBEDDED),
            python=str(VLLM_PYTHON),
            max_model_tokens=1024,
            start_timeout_s=START_TIMEOUT_S,
            concurrency=CONCURRENCY,
            timeout_s=300.0,
            max_retries=0,
            gpu_memory_share=0.4,
            **drawn,
        )
        return VllmProvider("vllm", settings, fingerprint)

    # one server for all: it takes a minute or two to start
    with provider_with(temperature=None, top_p=None, max_tokens=None).served() as endpoint:
        yield Way(provider_with, lambda provider, receipts: asked(provider, endpoint, receipts))


def asked(
    provider: VllmProvider, endpoint: Endpoint, receipts: Receipts
) -> AbstractContextManager[Exchange]:
    """Open an exchange with a server that another provider started."""
    return provider.exchange(endpoint, receipts)


WAYS: dict[str, Callable[[Path], AbstractContextManager[Way]]] = {
    "in this process": in_this_process,
    "by transformers serve": by_transformers,
    "by vLLM": by_vllm,
}


class Policy:
    """The shipped policy's values for an answer by one forward pass, without sampling or server."""

    def __init__(self) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED)
        model: Any = AutoModelForCausalLM.from_pretrained(EMBEDDED, dtype="float32")
        self._model = model.eval()

    def prompt_tokens(self, request: Request) -> list[int]:
        """Return the prompt's tokens by the shipped chat template."""
        text = self._tokenizer.apply_chat_template(
            request.prompt.as_chat(), add_generation_prompt=True, tokenize=False
        )
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def answer_tokens(self, completion: Completion) -> list[int]:
        """Return the answer's tokens, with the end token if the answer has ended by itself."""
        tokens = self._tokenizer(completion.text, add_special_tokens=False)["input_ids"]
        has_ended = completion.finish_reason == "stop"
        return tokens + [self._tokenizer.eos_token_id] * has_ended

    def logprobs(self, request: Request, completion: Completion) -> tuple[list[float], list[float]]:
        """Return log-probabilities of the answer's tokens, and of the likeliest in their place."""
        import torch

        prompt, answer = self.prompt_tokens(request), self.answer_tokens(completion)
        with torch.inference_mode():
            logits_TV = self._model(torch.tensor([prompt + answer])).logits[0]
        logprobs_TV = logits_TV[len(prompt) - 1 : -1].log_softmax(-1)
        taken_T = logprobs_TV.gather(1, torch.tensor(answer).unsqueeze(1)).squeeze(1)
        return taken_T.tolist(), logprobs_TV.amax(-1).tolist()

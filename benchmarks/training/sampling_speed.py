"""Time a step's sampling by us and by `generate`, for `benchmarks.training.training_speed`.

Answers are of random length, so seconds a token of the longest one are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.common import note
from cudal1.problem import DeviceClass, Split
from cudal1.prompts.prompt import DeviceFacts, PromptStyle, generation_prompt
from cudal1.suite import generator
from cudal1.train.checkpoints import quiet
from cudal1.train.policy import EMBEDDED
from cudal1.train.sampling.attention import attend_in_groups, drop_mask
from cudal1.train.sampling.draws import FreshDraw
from cudal1.train.sampling.recorded import RECORD_AT, Recorded
from cudal1.train.sampling.rollouts import Rollouts

PROMPTS, GROUP = {"cpu": 3, "cuda": 16}, {"cpu": 8, "cuda": 16}
MAX_NEW_TOKENS = 256
REPEATS = 3

Sample = Callable[[], list[list[int]]]


def sampling(
    kind: str, device_class: DeviceClass, facts: DeviceFacts, *, compiled: bool
) -> dict[str, Any]:
    """Return each way's seconds a token; on a GPU also whether recordings do what they record."""
    import torch
    from transformers import AutoTokenizer

    quiet()
    tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED)
    model, sampled = (_policy(kind, "float32").eval() for _ in range(2))
    if kind == "cpu":  # as the stages do
        attend_in_groups(sampled)
    prompts = _prompts(tokenizer, PROMPTS[kind], GROUP[kind], device_class, facts)
    ways = {
        "generate": lambda: _generated(model, tokenizer, prompts, do_sample=True),
        "ours": _rollouts(tokenizer, top_p=1.0).sample,
    }
    ours = ways["ours"]
    ways["ours"] = lambda: ours(sampled, prompts)
    if compiled:
        ways["generate, compiled"] = _compiled(tokenizer, prompts)
    found: dict[str, Any] = {"num_answers": len(prompts), "ms_a_token": {}}
    for name, sample in ways.items():
        try:
            with torch.autocast(  # as accelerate wraps each forward pass
                kind, torch.bfloat16, enabled=kind == "cuda", cache_enabled=False
            ):
                found["ms_a_token"][name] = _ms_a_token(sample)
        except Exception as error:  # noqa: BLE001 - one way's failure is a result
            found["ms_a_token"][name] = [float("nan")]
            note(f"sampling {name}: {error}")
        else:
            note(f"sampling {name}: {median(found['ms_a_token'][name]):.2f} ms a token")
    found["equal_greedy"] = _equal_greedy(model, sampled, tokenizer, prompts)
    note(f"likeliest tokens equal to generate's: {found['equal_greedy']:.2%}")
    if kind == "cuda":
        found |= _gradient_error()
        note(f"recorded layers: {found['num_recordings']}, gradients {found['gradient_error']:.1e}")
    typical = {name: median(values) for name, values in found["ms_a_token"].items()}
    found["table"] = [
        [
            f"sampling, ms a token ({name})",
            f"{value:.2f}",
            f"{typical['ours']:.2f}",
            f"{value / typical['ours']:.2f}",
        ]
        for name, value in typical.items()
        if name != "ours"
    ]
    return found


def _policy(kind: str, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(EMBEDDED, dtype=dtype)
    return model.to(kind)


def _prompts(
    tokenizer: Any, count: int, group: int, device_class: DeviceClass, facts: DeviceFacts
) -> list[list[int]]:
    problems = generator.problems(count, seed=31, device_class=device_class, split=Split.TRAIN)
    texts = [
        tokenizer.apply_chat_template(
            generation_prompt(problem, style=PromptStyle.COMPACT, facts=facts).as_chat(),
            add_generation_prompt=True,
            tokenize=False,
        )
        for problem in problems
    ]
    rendered = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    return [prompt for prompt in rendered for _ in range(group)]


def _rollouts(tokenizer: Any, *, top_p: float) -> Rollouts:
    return Rollouts(
        FreshDraw(temperature=1.0, top_p=top_p),
        max_new_tokens=MAX_NEW_TOKENS,
        end_ids=[tokenizer.eos_token_id],
        pad_id=tokenizer.pad_token_id,
    )


def _generated(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], **settings: Any
) -> list[list[int]]:
    """Return the answers of `generate`, as TRL calls it."""
    import torch

    width, pad = max(map(len, prompts)), tokenizer.pad_token_id
    tokens = [[pad] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    with torch.no_grad():
        made = model.generate(
            input_ids=torch.tensor(tokens, device=model.device),
            top_k=0,
            attention_mask=torch.tensor(mask, device=model.device),
            pad_token_id=pad,
            max_new_tokens=MAX_NEW_TOKENS,
            eos_token_id=tokenizer.eos_token_id,
            **settings,
        )
    rows = made[:, width:].tolist()
    return [
        row[: row.index(tokenizer.eos_token_id) + 1] if tokenizer.eos_token_id in row else row
        for row in rows
    ]


def _compiled(tokenizer: Any, prompts: Sequence[list[int]]) -> Sample:
    """Sample with `generate` at its best: fixed cache, compiler's CUDA graphs, bfloat16 weights."""
    model = _policy("cuda", "bfloat16").eval()
    return lambda: _generated(
        model, tokenizer, prompts, do_sample=True, cache_implementation="static"
    )


def _ms_a_token(sample: Sample) -> list[float]:
    sample()
    found: list[float] = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        answers = sample()  # lists: the device has ended
        found.append(1e3 * (time.perf_counter() - started) / max(map(len, answers)))
    return found


def _equal_greedy(model: Any, sampled: Any, tokenizer: Any, prompts: Sequence[list[int]]) -> float:
    """Return the share of tokens, in float32, that both ways find likeliest, of one answer each."""
    distinct = [list(prompt) for prompt in dict.fromkeys(map(tuple, prompts))]
    ours = _rollouts(tokenizer, top_p=1e-6).sample(sampled, distinct)
    theirs = _generated(model, tokenizer, distinct, do_sample=False)
    pairs = [
        (a, b)
        for mine, his in zip(ours, theirs, strict=True)
        for a, b in zip(mine, his, strict=False)  # one may end first
    ]
    return sum(a == b for a, b in pairs) / len(pairs)


def _gradient_error() -> dict[str, float]:
    """Return a recorded step's largest gradient error, over the largest gradient; bfloat16."""
    import torch

    model = _policy("cuda", "float32").train()
    drop_mask(model)
    tokens = torch.randint(5, 1000, (8, 512), device="cuda")
    plain = _gradients(model, tokens)
    layers = model.base_model.forward = Recorded(model.base_model)
    found = plain
    for _ in range(RECORD_AT + 1):
        found = _gradients(model, tokens)
    largest = max(gradient.abs().max().item() for gradient in plain)
    error = max((a - b).abs().max().item() for a, b in zip(found, plain, strict=True))
    return {"num_recordings": layers.num_recordings, "gradient_error": error / largest}


def _gradients(model: Any, tokens: Any) -> list[Any]:
    import torch

    model.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        hidden = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
    hidden.float().square().mean().backward()
    return [weight.grad.clone() for weight in model.base_model.parameters()]

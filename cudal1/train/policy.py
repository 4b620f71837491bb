"""Policies as folders (Hugging Face format): bring one, count its tokens, sample from it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudal1.errors import TrainingError
from cudal1.train.checkpoints import quiet

if TYPE_CHECKING:
    import torch

EMBEDDED = Path(__file__).parent / "embedded"
"""The shipped base policy; `python -m tasks.pretrain` reproduces it."""

Chat = Sequence[dict[str, str]]
"""Messages with `role` and `content`."""


@dataclass(frozen=True)
class Sampled:
    """One answer."""

    text: str
    finish_reason: str
    """`stop`, or `length` when it was cut."""
    num_prompt_tokens: int
    num_completion_tokens: int


def bring(source: str, out: Path, *, revision: str | None) -> None:
    """Put the base policy into `out`: `embedded`, a local folder, or a hub id.

    Raises:
        TrainingError: it cannot be found or loaded.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shutil.rmtree(out, ignore_errors=True)
    local = EMBEDDED if source == "embedded" else Path(source)
    if source == "embedded" or local.is_dir():
        if not (local / "config.json").is_file():
            raise TrainingError(f"policy.source {source}: holds no policy (no config.json)")
        shutil.copytree(local, out)
        _load(out)
        return
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(source, revision=revision)
        tokenizer: Any = AutoTokenizer.from_pretrained(source, revision=revision)
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"policy.source {source}: neither a local folder nor a model that the hub gives "
            f"({str(error).splitlines()[0]})"
        ) from error
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def fingerprint(folder: Path) -> str:
    """Hash of a policy folder's weights and tokenizer."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".safetensors", ".json", ".jinja"):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Sampler:
    """A loaded policy that answers prompts."""

    def __init__(self, folder: Path) -> None:
        import torch

        self._model, self._tokenizer = _load(folder)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model.to(self._device).eval()
        self.id = fingerprint(folder)

    def num_tokens(self, chat: Chat) -> int:
        """Tokens of a prompt, template included."""
        return len(self._render(chat))

    def sample(
        self, chats: Sequence[Chat], *, temperature: float, top_p: float, max_new_tokens: int,
        seed: int, batch_size: int,
    ) -> list[Sampled]:  # fmt: skip
        """One answer to each chat, in order; repeat a chat to get several.

        Prompts of like length share a batch, so that little padding is computed.
        """
        import torch

        torch.manual_seed(seed)
        prompts = [self._render(chat) for chat in chats]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        answers: dict[int, Sampled] = {}
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            tokens, mask = self._padded([prompts[i] for i in batch])
            with torch.inference_mode():
                made = self._model.generate(
                    input_ids=tokens, attention_mask=mask, do_sample=True, top_k=0,
                    temperature=temperature, top_p=top_p, max_new_tokens=max_new_tokens,
                    pad_token_id=self._tokenizer.pad_token_id,
                    eos_token_id=self._tokenizer.eos_token_id,
                )[:, tokens.shape[1] :]  # fmt: skip
            for i, row in zip(batch, made.tolist(), strict=True):
                answers[i] = self._answer(len(prompts[i]), row)
        return [answers[i] for i in range(len(prompts))]

    def _render(self, chat: Chat) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            list(chat), add_generation_prompt=True, tokenize=False
        )
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def _padded(self, prompts: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        width = max(len(prompt) for prompt in prompts)
        pad = self._tokenizer.pad_token_id
        tokens = [[pad] * (width - len(p)) + p for p in prompts]
        mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
        return (
            torch.tensor(tokens, device=self._device), torch.tensor(mask, device=self._device)
        )  # fmt: skip

    def _answer(self, num_prompt_tokens: int, row: list[int]) -> Sampled:
        end = self._tokenizer.eos_token_id
        length = row.index(end) if end in row else len(row)
        return Sampled(
            text=self._tokenizer.decode(row[:length], skip_special_tokens=True),
            finish_reason="stop" if end in row else "length",
            num_prompt_tokens=num_prompt_tokens,
            num_completion_tokens=length,
        )


def _load(folder: Path) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet()
    if not (folder / "config.json").is_file():
        raise TrainingError(f"{folder}: holds no policy (config.json is missing)")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise TrainingError(
            f"{folder}: cannot be loaded ({str(error).splitlines()[0]}); "
            "delete it and run its stage again"
        ) from error
    return model, tokenizer

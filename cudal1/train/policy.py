"""Handle policies as folders (Hugging Face format): fetch one, count its tokens, sample from it.

Shapes: B answers of a batch, T tokens of an answer.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudal1.errors import TrainingError
from cudal1.train import smollm2
from cudal1.train.checkpoints import quiet
from cudal1.train.sampling.attention import attend_in_groups, is_plain
from cudal1.train.sampling.draws import DrawingProcessor, GivenDraw
from cudal1.train.sampling.rollouts import Rollouts

if TYPE_CHECKING:
    import torch

EMBEDDED = Path(__file__).parent / "embedded"
"""The shipped base policy; `python -m tasks.pretrain` reproduces it."""

Chat = Sequence[dict[str, str]]
"""Messages with `role` and `content`."""


@dataclass(frozen=True)
class Sampled:
    """One sampled answer."""

    text: str
    finish_reason: str
    """`stop`, or `length` when the answer was cut."""
    num_prompt_tokens: int
    num_completion_tokens: int
    """Number of sampled tokens, the end token included."""
    logprobs: tuple[float, ...] | None = None
    """Natural logarithm of each token's probability, the end token's too; None if not asked for.

    Probabilities are the model's own, before temperature and top_p: what OpenAI and vLLM
    (`--logprobs-mode raw_logprobs`) call logprobs.
    """


def bring(source: str, out: Path, *, revision: str | None) -> None:
    """Put the base policy into `out`: `embedded`, `smollm2`, a local folder, or a hub id.

    Raises:
        TrainingError: it cannot be found or loaded.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shutil.rmtree(out, ignore_errors=True)
    if (local := local_folder(source)) is not None:
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


def local_folder(source: str) -> Path | None:
    """Return the folder of a `policy.source`; None for a hub id.

    Raises:
        TrainingError: the source is `smollm2`, which is neither converted nor installed.
    """
    match source:
        case "embedded":
            return EMBEDDED
        case smollm2.SOURCE:
            return smollm2.folder()
    folder = Path(source)
    return folder if folder.is_dir() else None


def config_of(source: str | dict[str, Any], *, revision: str | None = None) -> Any:
    """Return the `transformers` configuration of a `policy.source`, or of its content.

    Raises:
        TrainingError: it cannot be found.
    """
    from transformers import AutoConfig

    if isinstance(source, dict):
        return AutoConfig.for_model(**source)
    try:
        return AutoConfig.from_pretrained(local_folder(source) or source, revision=revision)
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"policy.source {source}: no configuration ({str(error).splitlines()[0]})"
        ) from error


def fingerprint(folder: Path) -> str:
    """Return a hash of a policy folder's weights and tokenizer."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".safetensors", ".json", ".jinja"):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def tokenizer_of(folder: Path) -> Any:
    """Return a policy's tokenizer, and load no weights.

    Raises:
        TrainingError: the folder holds no policy, or its tokenizer cannot be loaded.
    """
    return _load(folder, with_weights=False)[1]


def declared_end_ids(folder: Path) -> list[int]:
    """Return the tokens that end an answer by the policy's own files, its tokenizer aside."""
    from transformers import GenerationConfig

    if (folder / "generation_config.json").is_file():
        return _several(GenerationConfig.from_pretrained(folder).eos_token_id)
    return _several(GenerationConfig.from_model_config(config_of(str(folder))).eos_token_id)


def token_counter(folder: Path) -> Callable[[Chat], int]:
    """Return a counter that counts as a policy's `Sampler.num_tokens`, and loads no weights."""
    tokenizer = tokenizer_of(folder)
    return lambda chat: len(rendered(tokenizer, chat))


@dataclass(frozen=True)
class _Drawing:
    """A sampler's settings of a call, and the parts made for them."""

    asked: tuple[float, float, int]
    """Temperature, top_p and the longest answer."""
    draw: GivenDraw
    rollouts: Rollouts | None
    """Samples from a policy with plain attention; None where transformers' `generate` does."""


class Sampler:
    """A loaded policy that answers prompts, on the last visible GPU where there is one.

    Training would work on that GPU (`group.training_gpus`); a judge beside the sampler begins with
    the first GPU.
    """

    def __init__(self, folder: Path) -> None:
        import torch

        self._model, self._tokenizer = _load(folder)
        num_gpus = torch.cuda.device_count()
        self._device = f"cuda:{num_gpus - 1}" if num_gpus else "cpu"
        self._model.to(self._device).eval()
        self._is_plain = is_plain(self._model)
        if self._is_plain and self._device == "cpu":
            attend_in_groups(self._model)
        self._end_ids = _end_ids(self._model, self._tokenizer)
        pad = self._tokenizer.pad_token_id
        self._pad_id = self._end_ids[0] if pad is None else pad
        self._drawing: _Drawing | None = None
        self.id = fingerprint(folder)

    @staticmethod
    def fingerprint(folder: Path) -> str:
        """Return the id of the policy in a folder, without loading it."""
        return fingerprint(folder)

    def num_tokens(self, chat: Chat) -> int:
        """Return the tokens of a prompt, template included."""
        return len(rendered(self._tokenizer, chat))

    @property
    def num_positions(self) -> int | None:
        """Return the most tokens of prompt and answer together; None if the model does not say."""
        return getattr(self._model.config, "max_position_embeddings", None)

    def sample(
        self,
        chats: Sequence[Chat],
        *,
        temperature: float,
        top_p: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
        batch_size: int,
        with_logprobs: bool = False,
    ) -> list[Sampled]:
        """Return one answer to each chat, in order; repeat a chat to get several.

        Each answer is drawn from random numbers of its own, so it depends on its batch by rounding
        alone. Sums of another shape differ in the last digits. Rarely a draw falls so close to the
        border between two tokens that this decides. The folder's own sampling settings (top_k,
        repetition penalty) do not apply: log-probabilities and training know nothing of them.

        Args:
            chats: prompts; those of like length share a batch, so that little padding is computed.
            temperature: 0 takes the likeliest token.
            top_p: tokens are drawn from the likeliest that have this probability together.
            max_new_tokens: the longest answer, its end token counted.
            seed: one for each chat; or one for all, then equal chats still differ.
            batch_size: answers at a time; nearly no answer depends on it.
            with_logprobs: whether to fill `Sampled.logprobs`.
        """
        prompts = [rendered(self._tokenizer, chat) for chat in chats]
        seeds = [f"{seed}:{i}" for i in range(len(chats))] if isinstance(seed, int) else list(seed)
        drawing = self._ready(temperature, top_p, max_new_tokens)
        # the longest first: a recorded step then has room for the others
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]), reverse=True)
        answers: dict[int, Sampled] = {}
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            uniforms_TB = _uniforms([seeds[i] for i in batch], max_new_tokens)
            drawing.draw.give(uniforms_TB.to(self._device))
            made = self._answers(drawing, [prompts[i] for i in batch])
            for i, row, logprobs in zip(batch, made, drawing.draw.logprobs(), strict=True):
                answers[i] = self._answer(len(prompts[i]), row, logprobs if with_logprobs else None)
        return [answers[i] for i in range(len(prompts))]

    def _ready(self, temperature: float, top_p: float, max_new_tokens: int) -> _Drawing:
        """Return what draws so, from the last call where that drew so, too."""
        asked = temperature, top_p, max_new_tokens
        if self._drawing is None or self._drawing.asked != asked:
            self._drawing = None  # frees its memory first
            draw = GivenDraw(temperature=temperature, top_p=top_p)
            rollouts = None
            if self._is_plain:
                rollouts = Rollouts(
                    draw, max_new_tokens=max_new_tokens, end_ids=self._end_ids, pad_id=self._pad_id
                )
            self._drawing = _Drawing(asked, draw, rollouts)
        return self._drawing

    def _answers(self, drawing: _Drawing, prompts: Sequence[list[int]]) -> list[list[int]]:
        """Return the tokens after each prompt, to the end token at least."""
        if drawing.rollouts is not None:
            return drawing.rollouts.sample(self._model, prompts)
        import torch
        from transformers import LogitsProcessorList

        tokens, mask = self._padded(prompts)
        max_new_tokens = drawing.asked[2]
        drawing.draw.reserve(len(prompts), max_new_tokens, self._device)
        drawing.draw.begin()
        with torch.inference_mode():
            made = self._model.generate(
                input_ids=tokens,
                attention_mask=mask,
                max_new_tokens=max_new_tokens,
                do_sample=False,
                logits_processor=LogitsProcessorList([DrawingProcessor(drawing.draw)]),
                repetition_penalty=1.0,
                pad_token_id=self._pad_id,
                eos_token_id=self._end_ids,
            )
        return made[:, tokens.shape[1] :].tolist()

    def _padded(self, prompts: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        width = max(len(prompt) for prompt in prompts)
        tokens = [[self._pad_id] * (width - len(p)) + p for p in prompts]
        mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
        return (torch.tensor(tokens, device=self._device), torch.tensor(mask, device=self._device))

    def _answer(
        self, num_prompt_tokens: int, row: list[int], logprobs: list[float] | None
    ) -> Sampled:
        length = next((i for i, token in enumerate(row) if token in self._end_ids), len(row))
        has_ended = length < len(row)
        num_tokens = length + has_ended
        return Sampled(
            text=self._tokenizer.decode(row[:length], skip_special_tokens=True),
            finish_reason="stop" if has_ended else "length",
            num_prompt_tokens=num_prompt_tokens,
            num_completion_tokens=num_tokens,
            logprobs=None if logprobs is None else tuple(logprobs[:num_tokens]),
        )


def _uniforms(seeds: Sequence[int | str], num_steps: int) -> torch.Tensor:
    """Return numbers (T, B) in [0, 1), each column from its seed: equal on every kind of device."""
    import torch

    streams = [random.Random(seed) for seed in seeds]
    columns = [[stream.random() for _ in range(num_steps)] for stream in streams]
    return torch.tensor(columns, dtype=torch.float64).T


def _end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Return every token that ends an answer: the tokenizer's, and those that the model declares.

    A chat of SmolLM2 or Gemma ends with another token than the tokenizer's; TRL takes both, too.

    Raises:
        TrainingError: there is none, so no answer would end.
    """
    declared = _several(model.generation_config.eos_token_id)
    found = [each for each in (tokenizer.eos_token_id, *declared) if each is not None]
    if not found:
        raise TrainingError("the policy declares no end token; take another policy.source")
    return list(dict.fromkeys(found))


def _several(ids: int | list[int] | None) -> list[int]:
    """Return a configuration's one token, its several, or none, as a list."""
    if ids is None:
        return []
    return ids if isinstance(ids, list) else [ids]


def rendered(tokenizer: Any, chat: Chat) -> list[int]:
    """Return the tokens of a prompt, up to the place where its answer begins."""
    text = tokenizer.apply_chat_template(list(chat), add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _load(folder: Path, *, with_weights: bool = True) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet()
    if not (folder / "config.json").is_file():
        raise TrainingError(f"{folder}: holds no policy (config.json is missing)")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model: Any = None
        if with_weights:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise TrainingError(
            f"{folder}: cannot be loaded ({str(error).splitlines()[0]}); "
            "delete it and run its stage again"
        ) from error
    return model, tokenizer

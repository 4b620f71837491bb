"""Make the embedded base policy from nothing: tokenizer, model, and a plain training loop.

`tasks.pretrain` generates the text that it is trained on. Symbols: B rows, T tokens of context.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudal1.errors import TrainingError

if TYPE_CHECKING:
    import torch

log = logging.getLogger("cudal1")

Piece = tuple[Any, Sequence[int]]
"""Tokens of some documents (a numpy array of int16), and the number of tokens of each."""
MIN_DOCUMENT = 32
"""Fewest tokens of a document, which bounds the number of documents."""
SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' }}"
    "{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] + '<|end|>' }}{% endgeneration %}{{ '\\n' }}"
    "{% else %}{{ m['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
WORDS = r"\n[ ]*| ?[A-Za-z_]+|[0-9]| ?[^\sA-Za-z_0-9]+|\s+"
"""A pre-token: a newline with its indentation is one, and each digit is one: sizes are copied so.
"""


@dataclass(frozen=True)
class Architecture:
    """The size of a policy."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    context: int


def render(chat: Sequence[dict[str, str]]) -> str:
    """Return a chat as training text, equal to what the tokenizer's template gives."""
    return "".join(f"<|{m['role']}|>\n{m['content']}<|end|>\n" for m in chat)


def build_tokenizer(texts: Iterable[str], architecture: Architecture) -> Any:
    """Return a byte-level BPE tokenizer with single digits, trained on `texts`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=architecture.vocabulary,
            special_tokens=list(SPECIAL),
            min_frequency=2,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        additional_special_tokens=list(SPECIAL[2:]),
        padding_side="left",
        model_max_length=architecture.context,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def build_model(tokenizer: Any, architecture: Architecture, *, seed: int) -> Any:
    """Return a randomly initialised Qwen3 model."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=architecture.hidden,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.kv_heads,
        head_dim=64,
        intermediate_size=architecture.mlp,
        max_position_embeddings=architecture.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config.do_sample = True  # otherwise some servers decode greedily
    return model


class Corpus:
    """Tokens of documents, one behind the other, that can be drawn from while more arrive.

    Making text takes longer than training on it. So windows are drawn from the tokens that have
    arrived, and neither side waits for the other.
    """

    def __init__(self, pieces: Iterable[Piece], *, capacity: int, device: torch.device) -> None:
        """Read `pieces` in a thread; leave out all tokens above `capacity`."""
        import torch

        self._stream = torch.empty(capacity, dtype=torch.int16, device=device)
        self._starts = torch.empty(capacity // MIN_DOCUMENT, dtype=torch.int64)
        self._arrived: queue.SimpleQueue[Piece | BaseException | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(pieces,), daemon=True)
        self.num_tokens = self.num_documents = 0
        self.num_dropped = 0
        """Tokens that have arrived and were left out."""
        self.is_whole = False
        self._reader.start()

    def _read(self, pieces: Iterable[Piece]) -> None:
        try:
            for piece in pieces:
                self._arrived.put(piece)
        except BaseException as error:  # noqa: BLE001 - raised again where a caller waits for it
            self._arrived.put(error)
        self._arrived.put(None)

    def take_in(self, *, at_least: int = 0) -> None:
        """Append the tokens that have arrived; wait for `at_least` tokens, or for all."""
        while not self.is_whole:
            if self.num_tokens >= at_least and self._arrived.empty():
                return
            piece = self._arrived.get()
            if isinstance(piece, BaseException):
                raise piece
            if piece is None:
                self.is_whole = True
                return
            self._append(*piece)

    def _append(self, tokens: Any, lengths: Sequence[int]) -> None:
        import torch

        end, count = self.num_tokens + len(tokens), self.num_documents + len(lengths)
        if self.num_dropped or end > len(self._stream) or count > len(self._starts):
            self.num_dropped += len(tokens)
            return
        self._stream[self.num_tokens : end] = torch.from_numpy(tokens)
        begins = torch.tensor([0, *lengths[:-1]]).cumsum(0) + self.num_tokens
        self._starts[self.num_documents : count] = begins
        self.num_tokens, self.num_documents = end, count

    def say_what_is_missing(self) -> None:
        """Warn of text that was left out, if any was."""
        if self.num_dropped:
            log.warning(
                "pretraining: %d tokens of text%s were left out: there is room for %d tokens and "
                "%d documents; make fewer documents, or raise the capacity",
                self.num_dropped,
                "" if self.is_whole else ", and what was still to come,",
                len(self._stream),
                len(self._starts),
            )

    def draw(self, rows: int, length: int, drawing: torch.Generator) -> torch.Tensor:
        """Return windows (rows, length); each begins with a document and ends where it is full."""
        import torch

        last = self.num_tokens - length
        fitting = int(torch.searchsorted(self._starts[: self.num_documents], last, right=True))
        if fitting == 0:
            raise TrainingError(
                f"pretraining: {self.num_tokens} tokens do not fill a window of {length}; make "
                "more documents"
            )
        drawn = self._starts[torch.randint(fitting, (rows,), generator=drawing)]
        device = self._stream.device
        return self._stream[drawn.to(device)[:, None] + torch.arange(length, device=device)].long()


def train(
    model: Any,
    corpus: Corpus,
    *,
    steps: int,
    rows: int,
    context: int,
    learning_rate: float,
    seed: int,
    on_log: Callable[[int, float, float], None],
    time_limit_s: float = math.inf,
) -> int:
    """Train on windows of a corpus, which may still be growing; return the number of steps made.

    `on_log(step, loss, tokens_per_s)` is called now and then. A time limit cuts the schedule short
    in proportion, so that the learning rate still ends at zero.
    """
    import torch

    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.05, fused=on_gpu
    )
    forward: Any = torch.compile(model) if on_gpu else model
    drawing = torch.Generator().manual_seed(seed)
    model.train()
    corpus.take_in(at_least=2 * rows * context)
    started = time.monotonic()
    for step in range(steps):
        progress = max(step / steps, (time.monotonic() - started) / time_limit_s)
        if progress >= 1:
            steps = step
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / 200) * (1 - progress)
        corpus.take_in()
        batch = corpus.draw(rows, context + 1, drawing)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            logits = forward(input_ids=batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), batch[:, 1:].flatten()
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99 or step == steps - 1:
            rate = (step + 1) * rows * context / (time.monotonic() - started)
            on_log(step + 1, loss.item(), rate)
    corpus.say_what_is_missing()
    return steps


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Write the policy in bfloat16, in files small enough for a repository."""
    import torch

    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(out, max_shard_size="2900KB")
    tokenizer.save_pretrained(out)

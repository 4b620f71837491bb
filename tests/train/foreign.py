"""Make tiny random policies of other architectures, each with its family's chat template and ends.

Templates have the forms that the families publish, without tools and dates: Qwen's turns, Llama's
header with a begin token, Gemma's that knows no system role and calls the assistant `model`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudal1.train import smollm2

SIZE: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
QWEN = (
    "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\n' + "
    "messages[0]['content'] + '<|im_end|>\n' }}{%- else %}{{- '<|im_start|>system\nYou are a "
    "helpful assistant<|im_end|>\n' }}{%- endif %}{%- for m in messages %}{%- if not (m['role'] "
    "== 'system' and loop.first) %}{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + "
    "'<|im_end|>\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
LLAMA = (
    "{{- bos_token }}{%- for m in messages %}{{- '<|start_header_id|>' + m['role'] + "
    "'<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not "
    "supported') }}{% endif %}{% for m in messages %}{% if (m['role'] == 'assistant') %}"
    "{% set role = 'model' %}{% else %}{% set role = m['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)


def tiny_smollm2(out: Path) -> Path:
    """Make a random model of SmolLM2's architecture, with SmolLM2's own tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = smollm2.tokenizer(smollm2.weights_file())
    tokenizer.save_pretrained(out)
    end = tokenizer.eos_token_id
    config = LlamaConfig(
        vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=end, pad_token_id=end, **SIZE
    )
    return _save(LlamaForCausalLM(config), out, [end])


def tiny_qwen(out: Path) -> Path:
    """Make a random Qwen2; its chats end with another token than its documents."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    made = _tokenizer(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        QWEN,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    made.save_pretrained(out)
    return _save(Qwen2ForCausalLM(Qwen2Config(vocab_size=len(made), **SIZE)), out, [2, 0])


def tiny_llama(out: Path) -> Path:
    """Make a random Llama 3; it has no padding token, and adds a begin token by itself."""
    from tokenizers import processors
    from transformers import LlamaConfig, LlamaForCausalLM

    words = (
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eom_id|>",
        "<|eot_id|>",
    )
    made = _tokenizer(words, LLAMA, bos_token=words[0], eos_token="<|eot_id|>")
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{words[0]} $A", special_tokens=[(words[0], 0)]
    )
    made.save_pretrained(out)
    return _save(LlamaForCausalLM(LlamaConfig(vocab_size=len(made), **SIZE)), out, [1, 4, 5])


def tiny_gemma(out: Path) -> Path:
    """Make a random Gemma 3, of which every second layer sees 32 tokens."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    words = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
    made = _tokenizer(
        words, GEMMA, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"
    )
    made.save_pretrained(out)
    config = Gemma3TextConfig(
        vocab_size=len(made),
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=16,
        **SIZE,
    )
    return _save(Gemma3ForCausalLM(config), out, [1, 5])


FAMILIES: dict[str, Callable[[Path], Path]] = {
    "smollm2": tiny_smollm2,
    "qwen": tiny_qwen,
    "llama": tiny_llama,
    "gemma": tiny_gemma,
}


def _tokenizer(words: tuple[str, ...], template: str, **special: str) -> Any:
    """Return a byte-level tokenizer without merges that begins with the tokens `words`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        ["class ModelNew forward return torch import nn self"],
        trainers.BpeTrainer(
            vocab_size=320,
            special_tokens=list(words),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        chat_template=template,
        clean_up_tokenization_spaces=False,
        additional_special_tokens=list(words),
        **special,
    )


def _save(model: Any, out: Path, ends: list[int]) -> Path:
    import torch

    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.05)
    model.generation_config.eos_token_id = ends
    model.config.eos_token_id = ends[0]
    model.save_pretrained(out)
    return out

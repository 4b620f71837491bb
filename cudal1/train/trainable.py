"""Find what stage `rl` could not train, from its settings and the policy's folder alone.

Each fault would end the stage after hours of earlier stages, or let it go on and learn nothing.
Faults of settings alone are found where params.yaml is read (`cudal1.settings.params`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudal1.extract.extract import extract
from cudal1.problem import Problem
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import DeviceFacts, answer_text, contrastive_prompt, generation_prompt
from cudal1.selection.exemplar import Exemplar
from cudal1.settings.params import Params
from cudal1.settings.rl_params import RlParams
from cudal1.train.policy import Chat, config_of, declared_end_ids, rendered, tokenizer_of

PROBED = 3
"""Number of problems that try the tokenizer: their prompts, and their references as answers."""
PLAIN: Chat = [{"role": "user", "content": "Write a faster ModelNew."}]
PROBE = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        # the sum, no less than 0
        return torch.clamp(x + y[:, None], min=0.0) if x.shape != y.shape else x
"""
"""A candidate that tries the tokenizer where no problem is given."""
ANOTHER = "take another policy.source"


@dataclass(frozen=True)
class Asked:
    """The prompts of a training: its problems, and the device that judges answers to them."""

    problems: Sequence[Problem] | None = None
    """None if they are not known: then their prompts are not checked."""
    facts: DeviceFacts | None = None
    """None where no problem is known, or the style's templates use no facts."""

    def some(self) -> list[tuple[Problem | None, str]]:
        """Return a few problems, each with a source that could answer it."""
        known = self.problems or ()
        some = known[:: max(1, len(known) // PROBED)][:PROBED]
        return [(None, PROBE), *((problem, problem.as_candidate) for problem in some)]


def faults(
    folder: Path, params: Params, reinforced: Mapping[str, RlParams], asked: Asked
) -> list[str]:
    """Return why stage `rl` could not train a policy: a line each, with the remedy.

    Args:
        folder: the policy; its weights are not read.
        params: all settings.
        reinforced: settings of stage `rl` and of others that train like it, by their places in
            params.yaml.
        asked: what the policy is trained on.

    Raises:
        TrainingError: the folder holds no policy.
    """
    tokenizer, config = tokenizer_of(folder), config_of(str(folder))
    found = [f"{folder}: {fault}" for fault in _of_template(tokenizer)]
    can_render = not found
    # each renders prompts and ends answers, as those before it allow
    found = found or [f"{folder}: {fault}" for fault in _of_ends(folder, tokenizer, config)]
    found = found or [f"{folder}: {fault}" for fault in _of_text(tokenizer, params, asked)]
    for key, rl in reinforced.items():
        found += [f"{key}: {fault}" for fault in _of_room(config, params, key, rl)]
    found += [f"evaluation: {fault}" for fault in _of_examination(config, params)]
    if asked.problems is not None and can_render:
        lengths = _Lengths(tokenizer, params, asked.problems, asked.facts)
        for key, rl in reinforced.items():
            found += [f"{key}: {fault}" for fault in _of_prompts(lengths, params, key, rl)]
    return found


def _of_template(tokenizer: Any) -> Iterator[str]:
    """Yield why prompts, or the answers that earlier stages learn, cannot be rendered."""
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        yield f"its tokenizer has no chat template; {ANOTHER}, one that was trained to chat"
        return
    answer = answer_text(PROBE)
    try:
        rendered(tokenizer, PLAIN)
        whole = _with_answer(tokenizer, answer)
    except (TemplateError, ValueError, TypeError) as error:
        said = str(error).splitlines() or [type(error).__name__]
        yield f"its chat template refuses a question with its answer ({said[0]}); {ANOTHER}"
        return
    if answer not in whole:
        yield f"its chat template does not show an answer as it is; {ANOTHER}"


def _of_ends(folder: Path, tokenizer: Any, config: Any) -> Iterator[str]:
    """Yield why no answer would end, or why padding would be no token of the model."""
    if tokenizer.eos_token_id is None:
        yield (
            "its tokenizer has no end token, which TRL needs; name eos_token in its "
            f"tokenizer_config.json, or {ANOTHER}"
        )
        return
    num_tokens = config.get_text_config().vocab_size
    for name in ("eos_token", "pad_token"):
        token = getattr(tokenizer, f"{name}_id")
        if token is not None and token >= num_tokens:
            yield f"{name} of its tokenizer is number {token} of {num_tokens} tokens; {ANOTHER}"
            return
    ends = {tokenizer.eos_token_id, *declared_end_ids(folder)}
    after = _with_answer(tokenizer, answer_text(PROBE)).rpartition(answer_text(PROBE))[2]
    if ends.isdisjoint(_tokens(tokenizer, after)):
        yield (
            f"its chat template ends an answer with {after.strip()!r}, which is none of its end "
            "tokens, so answers would never end; add its number to eos_token_id in "
            f"generation_config.json, or {ANOTHER}"
        )


def _of_text(tokenizer: Any, params: Params, asked: Asked) -> Iterator[str]:
    """Yield why text does not survive the tokenizer, or why TRL reads other text than we do."""
    style, facts = params.policy.prompts, asked.facts
    for problem, source in asked.some():
        chat = (
            PLAIN
            if problem is None
            else generation_prompt(problem, style=style, facts=facts).as_chat()
        )
        name = "a short module" if problem is None else problem.key
        prompt, answer = rendered(tokenizer, chat), _tokens(tokenizer, answer_text(source))
        unknown = tokenizer.unk_token_id
        if unknown is not None and unknown in [*prompt, *answer]:
            yield f"its tokenizer has no tokens for a part of {name}; {ANOTHER}"
            return
        text = tokenizer.decode(answer, skip_special_tokens=True)
        if not _is_program(text, source):
            yield (
                f"its tokenizer gives {name} back as another program than it took it; {ANOTHER}, "
                "with a tokenizer that keeps blanks, line breaks and capitals"
            )
            return
        for ids in _forms(tokenizer, source):
            if _read_by_trl(tokenizer, prompt, ids) != _decoded(tokenizer, ids):
                yield (
                    "TRL would read answers otherwise than they are sampled, by the tokenizer's "
                    "response_template; delete that key of tokenizer_config.json in a copy of the "
                    f"folder and make this the policy.source, or {ANOTHER}"
                )
                return


def _of_room(config: Any, params: Params, key: str, rl: RlParams) -> Iterator[str]:
    """Yield why a prompt and its answer may be longer than the policy's context."""
    has_room = getattr(config.get_text_config(), "max_position_embeddings", None)
    needed = params.max_contrast_tokens(rl) + params.policy.max_new_tokens
    if has_room is not None and needed > has_room:
        shown = {
            f"{key}.num_exemplars": rl.shows_exemplars and rl.num_exemplars > 0,
            f"{key}.num_failures": rl.shows_exemplars and rl.num_failures > 0,
            f"{key}.turns": rl.turns > 1,
        }
        fewer = [name for name, is_shown in shown.items() if is_shown]
        remedies = ["policy.max_prompt_tokens", *fewer, "policy.max_new_tokens"]
        yield (
            f"a prompt and its answer may take {needed} tokens, but the policy has {has_room} "
            f"positions; lower {' or '.join(remedies)}"
        )


def _of_examination(config: Any, params: Params) -> Iterator[str]:
    """Yield why the last prompt of an examination may be longer than the policy's context."""
    has_room = getattr(config.get_text_config(), "max_position_embeddings", None)
    needed = params.max_examined_tokens() + params.policy.max_new_tokens
    if has_room is not None and params.evaluation.turns > 1 and needed > has_room:
        yield (
            f"a prompt and its answer may take {needed} tokens, but the policy has {has_room} "
            "positions; lower evaluation.turns or policy.max_new_tokens"
        )


class _Lengths:
    """The tokens of prompts to one policy."""

    def __init__(
        self, tokenizer: Any, params: Params, problems: Sequence[Problem], facts: DeviceFacts | None
    ) -> None:
        style = params.policy.prompts
        self.plain = [
            len(rendered(tokenizer, generation_prompt(p, style=style, facts=facts).as_chat()))
            for p in problems
        ]
        """Tokens of each problem's plain prompt."""
        frame = [Exemplar(candidate_id="", score=1.0, source="")]
        self.contrastive = [
            len(
                rendered(
                    tokenizer, contrastive_prompt(p, frame, style=style, facts=facts).as_chat()
                )
            )
            for p in problems
        ]
        """Tokens of each problem's prompt with one exemplar that has no code."""


def _of_prompts(lengths: _Lengths, params: Params, key: str, rl: RlParams) -> Iterator[str]:
    """Yield why too few prompts are short enough, with exemplars or without."""
    at_most = params.policy.max_prompt_tokens
    num_fitting = sum(tokens <= at_most for tokens in lengths.plain)
    if num_fitting < rl.prompts_per_step:
        yield (
            f"{num_fitting} of {len(lengths.plain)} training problems have a prompt of at most "
            f"{at_most} tokens, for {rl.prompts_per_step} prompts a step; raise "
            f"policy.max_prompt_tokens, or lower {key}.prompts_per_step"
        )
    shortest = min(lengths.contrastive, default=0)
    if rl.shows_exemplars and shortest > params.max_contrast_tokens(rl):
        yield (
            f"no prompt could show an exemplar: the shortest takes {shortest} tokens without its "
            f"code, of {params.max_contrast_tokens(rl)}; raise policy.max_prompt_tokens or "
            f"policy.max_new_tokens, or set {key}.sampling to none"
        )


def _with_answer(tokenizer: Any, answer: str) -> str:
    chat = [*PLAIN, {"role": "assistant", "content": answer}]
    return tokenizer.apply_chat_template(chat, tokenize=False)


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _is_program(text: str, source: str) -> bool:
    found = extract(text).source
    return found is not None and program_id(found) == program_id(source)


def _forms(tokenizer: Any, source: str) -> list[list[int]]:
    """Return the tokens of answers as policies give them: bare, spaced, with thoughts, cut off."""
    answer = answer_text(source)
    whole = (answer, f"\n{answer}\n", f"<think>\nIt is slow.\n</think>\n\n{answer}")
    cut = _tokens(tokenizer, answer)
    ended = [[*_tokens(tokenizer, text), tokenizer.eos_token_id] for text in whole]
    return [*ended, cut[: len(cut) // 2]]


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)


def _read_by_trl(tokenizer: Any, prompt: list[int], ids: list[int]) -> str:
    """Return the answer as GRPOTrainer gives it to reward functions."""
    if getattr(tokenizer, "response_template", None) is None:
        return _decoded(tokenizer, ids)
    from trl.chat_template_utils import parse_response

    return parse_response(tokenizer, ids, prefix=prompt, tools=[])["content"]

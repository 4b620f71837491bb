"""One turn of a chat: a text without the marks that chat templates and web pages leave."""

from __future__ import annotations

import re

_INVISIBLE = {0x200B: None, 0x2060: None, 0xFEFF: None, 0xA0: " "}
"""Zero-width space, word joiner, byte order mark; and the no-break space of web pages."""
_FINAL_CHANNEL = "<|channel|>final<|message|>"
"""Mark behind which gpt-oss answers; everything before it is reasoning."""
_BAR, _UNDERSCORE = "\uff5c", "\u2581"
"""Characters of DeepSeek's special tokens."""
_START = re.compile(
    rf"\s*(?:(?:<s>|</s>|<\|(?:im_end|im_start|start_header_id)\|>|<{_BAR}Assistant{_BAR}>)"
    r"(?:assistant)?(?:<\|end_header_id\|>)?\s*)+"
)
_END = re.compile(
    r"(?:<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|return)\|>|</s>|<end_of_turn>"
    rf"|<{_BAR}end{_UNDERSCORE}of{_UNDERSCORE}sentence{_BAR}>)[ \t]*$",
    re.MULTILINE,
)
_THINK = r"(?:\w{1,20}:)?(?:think|thinking|reasoning|thought|scratchpad)"
REASONING_OPEN = re.compile(
    rf"\s*(?:<{_THINK}(?:\s[^<>]{{0,80}})?>|\[THINK\]|◁think▷|<\|begin_of_thought\|>)",
    re.IGNORECASE,
)
REASONING_CLOSE = re.compile(
    rf"(?<!`)(?:</{_THINK}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>)", re.IGNORECASE
)


def turn_of(text: str) -> str:
    """Return the model's own turn, with Python's line ends and no invisible characters.

    A model that does not stop goes on with turns of a user and of itself: they answer no question.
    """
    text = text.translate(_INVISIBLE).replace("\r\n", "\n").replace("\r", "\n")
    text = text.rpartition(_FINAL_CHANNEL)[2]
    if start := _START.match(text):
        text = text[start.end() :]
    end = _END.search(text)
    return text[: end.start()] if end else text

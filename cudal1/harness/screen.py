"""What the source alone gives away. Advisory: it labels and explains, and never decides.

Threat: any pattern can be written another way, so nothing may depend on finding one here.
"""

from __future__ import annotations

import re

from cudal1.verdict import FlagSource, HackFlag

_SIGNS: dict[str, str] = {
    "extra_stream": r"cuda\.(Stream|stream)\b",
    "patched_timer": r"\b(time|cuda|Event)\.(perf_counter|time|synchronize|elapsed_time)\w*\s*=",
    "pointer_cache": r"\.data_ptr\(\)|\bid\(\w+\)",
    "introspection": r"sys\._getframe|gc\.get_objects|inspect\.(stack|currentframe)",
    "subprocess": r"\bsubprocess\b|os\.(system|popen|fork|kill|exec\w*)\b",
    "file_access": r"\bopen\(|/proc/|/dev/shm",
    "lower_precision": r"\.half\(\)|\.bfloat16\(\)|float16|autocast|allow_tf32",
    "background_thread": r"threading\.Thread|concurrent\.futures",
    "fallback": r"\bexcept\b",
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _SIGNS.items()}


def screen(source: str) -> tuple[HackFlag, ...]:
    """A flag for each sign, with the first line that shows it."""
    flags: list[HackFlag] = []
    for kind, pattern in _PATTERNS.items():
        found = pattern.search(source)
        if found:
            line = source.count("\n", 0, found.start()) + 1
            text = source.split("\n")[line - 1].strip()[:120]
            flags.append(
                HackFlag(kind=kind, source=FlagSource.SCREEN, evidence=f"line {line}: {text}")
            )
    return tuple(flags)

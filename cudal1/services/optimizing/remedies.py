"""Find the remedy for a module that cannot be judged, by the reason of its trial."""

from __future__ import annotations

import re

REMEDIES = (
    (
        r"No module named|ModuleNotFoundError",
        "install what it imports into cudal1's environment, or give its files as a folder",
    ),
    (
        r"NVIDIA driver|not compiled with CUDA|CUDA driver|No CUDA GPUs|no kernel image",
        "it needs a GPU that is not here: run on a machine with one, or take .cuda() and "
        'device="cuda" out of it, since cudal1 chooses the device',
    ),
    (
        r"different outputs for equal inputs",
        "it draws randomly when it is called: try --mode eval, or take the random part out of "
        "forward",
    ),
    (
        r"another generator than torch",
        "draw its weights with torch's generator, which cudal1 seeds",
    ),
    (
        r"same values whatever the seed",
        "draw the inputs with torch.randn or torch.rand, without a seed of your own",
    ),
    (r"must return a list of tensors", "return [x] or [x, y] from get_inputs"),
    (r"too slow", "choose smaller example inputs in get_inputs"),
    (r"NaN or infinity", "choose example inputs for which the output is finite"),
    (r"does not depend on|is constant", "choose example inputs that change the output"),
)
"""Patterns of reasons, and what to do; the first that is found counts."""


def with_remedy(reason: str) -> str:
    """Return a reason with what to do about it, where that is known."""
    for pattern, remedy in REMEDIES:
        if re.search(pattern, reason) and remedy not in reason:
            return f"{reason}; {remedy}"
    return reason

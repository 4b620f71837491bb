"""Run the command line with a shorter limit for the trial of a reference.

python -I benchmarks/fuzz/quick.py SECONDS judge …

It imports nothing of this package: an isolated interpreter does not find it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from cudal1.cli import app, judge
from cudal1.cli.options.settings import Settings


def main() -> None:
    """Run the command that the arguments give."""
    limit_s, chosen = float(sys.argv.pop(1)), judge.choose

    def choose(*given: Any) -> Settings:
        return replace(chosen(*given), trial_limit_s=limit_s)

    judge.choose = choose
    app(prog_name="cudal1")


if __name__ == "__main__":
    main()

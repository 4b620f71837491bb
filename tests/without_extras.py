"""Run the command line as it is where no extra is installed: `start.py` runs it as a module."""

from __future__ import annotations

import sys

from cudal1.settings.extras import EXTRA_OF

if __name__ == "__main__":
    for name in EXTRA_OF:
        sys.modules[name] = None  # type: ignore[assignment]  # Python imports none of them then
    from cudal1.cli import app

    app(prog_name="cudal1")

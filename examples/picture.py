"""Draw docs/verdict.svg: a terminal in which two candidates of layer_norm are judged.

python -m examples.picture

The commands run here, now, and the picture shows what they print.
"""

from __future__ import annotations

import argparse
import subprocess
import textwrap
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from cudal1.processes import python

FOLDER = Path(__file__).parent / "layer_norm"
PICTURE = Path(__file__).parent.parent / "docs" / "verdict.svg"
COMMANDS = ("cudal1 judge model.py faster.py", "cudal1 judge model.py remembers.py")
LABEL_WIDTH = 11
"""Columns that the label of a line takes, such as `verdict`."""
LINE_WIDTH = 100
"""Columns of the terminal."""
CHARACTER = 7.83
"""Width of a character of the picture's font, in pixels."""
LINE = 18
"""Height of a line, in pixels."""
MARGIN = 16
COLOURS = {"CORRECT": "#3fb950", "CHEATS": "#ff7b72"}
"""Colours of a verdict, by the word with which it begins."""


def printed(command: str) -> list[str]:
    """Run a command beside the example and return the lines that it prints."""
    words = [*command.split()[1:], "--wait", "600"]
    done = subprocess.run(
        python("cudal1.cli", *words), cwd=FOLDER, capture_output=True, text=True, check=False
    )
    if done.returncode == 2:
        raise SystemExit(done.stderr.strip())
    return done.stdout.splitlines()


def wrapped(line: str) -> list[str]:
    """Return a line in pieces that fit, all but the first indented like its text."""
    indent = " " * LABEL_WIDTH
    return textwrap.wrap(line, LINE_WIDTH, subsequent_indent=indent, drop_whitespace=True)


def drawn(line: str, top: int) -> str:
    """Return one line of the terminal as SVG."""
    colour = next((value for word, value in COLOURS.items() if word in line), "#e6edf3")
    if line.startswith("$"):
        colour = "#79c0ff"
    return (
        f'<text x="{MARGIN}" y="{top}" fill="{colour}" xml:space="preserve">{escape(line)}</text>'
    )


def picture(lines: Sequence[str]) -> str:
    """Return a terminal that shows these lines as SVG."""
    width = round(LINE_WIDTH * CHARACTER) + 2 * MARGIN
    height = LINE * len(lines) + 2 * MARGIN
    texts = [drawn(line, MARGIN + LINE * number + 13) for number, line in enumerate(lines)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="Two verdicts in a terminal" '
            "font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" "
            'font-size="13">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
            *texts,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Judge both candidates and draw what was printed."""
    argparse.ArgumentParser(
        prog="python -m examples.picture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    lines: list[str] = []
    for command in COMMANDS:
        output = printed(command)
        print("\n".join([f"$ {command}", *output, ""]))
        lines += [f"$ {command}", *(piece for line in output for piece in wrapped(line)), ""]
    PICTURE.write_text(picture(lines[:-1]), encoding="utf-8")
    print(f"{PICTURE.name} shows these verdicts")


if __name__ == "__main__":
    main()

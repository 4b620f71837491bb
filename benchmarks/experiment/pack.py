"""Put together what a bare GPU machine needs to run the pipeline: wheels, in pieces that travel.

    python -m benchmarks.experiment.pack [--into DIR]

DIR (.lent) holds `wheels.tar.00` and so on afterwards. Each piece is carried with a command of its
own to a machine that stays warm (`lent.sh` says how); the checkout travels with each of them.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from benchmarks.arguments import Parser
from benchmarks.common import ROOT
from benchmarks.lent import pack
from cudal1.files.text_file import read_text

IMPORTED = ("diskcache", "duckdb", "dvc", "mlflow", "networkx", "polars", "pydantic", "ruamel-yaml")
IMPORTED += ("datasets", "trl")
"""Packages that the stages import; what these require comes along."""
THERE = frozenset(
    {
        *("accelerate", "aiohttp", "aiosignal", "annotated-doc", "anyio", "attrs", "certifi"),
        *("charset-normalizer", "click", "cloudpickle", "colorama", "contourpy", "cycler"),
        *("filelock", "fonttools", "frozenlist", "fsspec", "h11", "hf-xet", "httpcore", "httpx"),
        *("huggingface-hub", "idna", "jinja2", "joblib", "kiwisolver", "markdown-it-py"),
        *("markupsafe", "matplotlib", "mdurl", "multidict", "narwhals", "networkx", "numpy"),
        *("packaging", "pandas", "pathspec", "pillow", "propcache", "protobuf", "psutil"),
        *("pyarrow", "pygments", "pyparsing", "python-dateutil", "pyyaml", "regex", "requests"),
        *("rich", "safetensors", "scikit-learn", "scipy", "shellingham", "six", "tabulate"),
        *("threadpoolctl", "tokenizers", "torch", "tqdm", "transformers", "triton", "typer"),
        *("typing-extensions", "urllib3", "werkzeug", "wrapt", "xxhash", "yarl", "zipp"),
    }
)
"""Packages that the machine has; their versions fit ours."""
UNUSED = frozenset({"antlr4-python3-runtime", "hydra-core", "omegaconf"})
"""Requirements of DVC's experiments, which no stage runs; one of them has no wheel."""
PIECE = "38M"
"""Bytes that fit beside a checkout."""


def main() -> None:
    """Make the pieces, and print their sizes."""
    parser = Parser(
        prog="python -m benchmarks.experiment.pack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--into", type=Path, default=ROOT / ".lent", help="the folder (.lent)")
    parser.add_argument("--python-version", default="3.12", help="the machine's (3.12)")
    given = parser.parse_args()
    version = given.python_version
    names = pack.needed(IMPORTED, python_version=version, there=THERE)
    pins = pack.pinned(sorted({*names} - UNUSED), read_text(ROOT / "constraints.txt"))
    given.into.mkdir(parents=True, exist_ok=True)
    for old in given.into.glob("wheels.tar.*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        pack.download(pins, Path(folder) / "wheels", python_version=version)
        tar = subprocess.Popen(["tar", "c", "-C", folder, "wheels"], stdout=subprocess.PIPE)
        split = ["split", "-b", PIECE, "-d", "-", str(given.into / "wheels.tar.")]
        subprocess.run(split, stdin=tar.stdout, check=True)
    for piece in sorted(given.into.glob("wheels.tar.*")):
        print(f"{piece.stat().st_size / 1e6:8.2f} MB  {piece}")


if __name__ == "__main__":
    main()

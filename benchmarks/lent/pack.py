"""Put together what a bare GPU machine needs to run benchmarks: wheels, code and data.

python -m benchmarks.lent.pack [--into DIR] [--release CLONE] [--kernelbench CLONE]

The machine has Python and PyTorch, and reaches no network. DIR holds afterwards:

* `run.sh`, which the machine runs;
* `wheels`, of the versions in constraints.txt: what `cudal1 judge` and the benchmarks import;
* `parts/tree.tgz`, this checkout's last commit; changes that are not committed are not in it;
* `parts/release.tgz` and `parts/kernelbench.tgz`, from clones of
  https://github.com/deepreinforce-ai/CUDA-L1 and https://github.com/ScalingIntelligence/KernelBench,
  bare ones too. Without the option, a part that an earlier call made stays.

Nothing of DIR is ever committed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.arguments import Parser
from benchmarks.common import ROOT
from cudal1.errors import ConfigError
from cudal1.files.text_file import read_text

IMPORTED = ("diskcache", "psutil", "pydantic", "pytest", "pyyaml", "rich", "typer")
"""Packages that the programs of `check` import; what these require comes along.

`pytest` is for `benchmarks.judging.corpus`, which takes its cases from the tests. Two imports are
left out: `ray` is for clusters, `datasets` for problems of a hub.
"""
THERE = frozenset({"numpy", "torch", "triton"})
"""Packages that the machine has; they fit its GPU, and a wheel could replace them by others."""
PROFILER = "py-spy==0.4.3"
"""Samples the stacks of Python processes from outside; a program, and no package of ours."""
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 24, 17, 12, 5)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
)
"""Tags of wheels that the machine can install."""
MAX_BYTES = 40_000_000
"""Most bytes carried beside a working tree, of the 64 MiB that travel in all."""
CODE = (".", ":!benchmarks/results", ":!cudal1/train/embedded/*.safetensors", ":!docs")
"""Paths of the checkout: all but results, the embedded policy and pages."""
RELEASE = ("optimized_cuda_code/h100.json", "more_baselines/cuda_graph.json")
"""Files of the authors' repository that `benchmarks.release` reads for H100."""
KERNELBENCH = ("KernelBench", "src")
"""Folders of KernelBench: problems and evaluator."""


def main() -> None:
    """Make the folder, and print its size."""
    parser = Parser(
        prog="python -m benchmarks.lent.pack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--into", type=Path, default=ROOT / ".lent", help="the folder (.lent)")
    add("--release", type=Path, metavar="CLONE", help="of the authors' repository")
    add("--kernelbench", type=Path, metavar="CLONE", help="of KernelBench")
    add("--python-version", default="3.12", help="the machine's (3.12)")
    given = parser.parse_args()
    try:
        pack(
            given.into,
            python_version=given.python_version,
            release=given.release,
            kernelbench=given.kernelbench,
        )
    except ConfigError as error:
        sys.exit(str(error))


def pack(
    into: Path, *, python_version: str, release: Path | None, kernelbench: Path | None
) -> None:
    """Fill the folder.

    Args:
        into: the folder; other files in it are left alone.
        python_version: the machine's, such as 3.12.
        release: a clone of the authors' repository; None leaves its part alone.
        kernelbench: a clone of KernelBench; None leaves its part alone.

    Raises:
        ConfigError: something cannot be had, or all of it is too large to travel.
    """
    parts = into / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    for name, clone, paths in (
        ("tree", ROOT, CODE),
        ("release", release, RELEASE),
        ("kernelbench", kernelbench, KERNELBENCH),
    ):
        if clone is not None:
            archive(clone, paths, parts / f"{name}.tgz", prefix=name)
    shutil.copyfile(Path(__file__).with_name("run.sh"), into / "run.sh")
    pins = pinned(
        needed(IMPORTED, python_version=python_version), read_text(ROOT / "constraints.txt")
    )
    download([*pins, PROFILER], into / "wheels", python_version=python_version)
    show(into)


def needed(
    names: Iterable[str], *, python_version: str, there: frozenset[str] = THERE
) -> list[str]:
    """Return packages and all that they require, as installed here.

    Args:
        names: of the packages.
        python_version: the machine's, such as 3.12.
        there: packages that the machine has; they and what they require are left out.

    Raises:
        ConfigError: one of them is not installed here.
    """
    environment = {"python_version": python_version, "python_full_version": f"{python_version}.0"}
    found, left = set[str](), [canonicalize_name(name) for name in names]
    while left:
        name = left.pop()
        if name in found or name in there:
            continue
        found.add(name)
        try:
            requirements = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            raise ConfigError(f"{name}: not installed here; run make dev first") from None
        for requirement in map(Requirement, requirements):
            marker = requirement.marker
            if marker is None or marker.evaluate({**environment, "extra": ""}):
                left.append(canonicalize_name(requirement.name))
    return sorted(found)


def pinned(names: Iterable[str], constraints: str) -> list[str]:
    """Return packages with their versions, as pip takes them.

    Raises:
        ConfigError: constraints.txt has no version of one of them.
    """
    versions: Mapping[str, str] = dict(re.findall(r"^([\w.-]+)==(\S+)", constraints, re.MULTILINE))
    for name in names:
        if name not in versions:
            raise ConfigError(f"constraints.txt: no version of {name}; add one")
    return [f"{name}=={versions[name]}" for name in names]


def download(pins: Iterable[str], folder: Path, *, python_version: str) -> None:
    """Fill the folder with a wheel for each pin, and nothing else.

    Raises:
        ConfigError: pip finds no wheel of one of them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--implementation", "cp"]
    options += ["--python-version", python_version, "--dest", str(folder)]
    options += [word for platform in PLATFORMS for word in ("--platform", platform)]
    _run([sys.executable, "-m", "pip", "download", *options, *pins])


def archive(clone: Path, paths: Iterable[str], out: Path, *, prefix: str) -> None:
    """Write some paths of a clone's last commit to a tgz, below a folder of that name.

    Raises:
        ConfigError: it is no clone, or lacks one of the paths.
    """
    command = ["git", "-C", str(clone), "archive", "--format=tar.gz", f"--prefix={prefix}/"]
    _run([*command, f"--output={out.resolve()}", "HEAD", *paths])


def show(into: Path) -> None:
    """Print what is to be carried.

    Raises:
        ConfigError: it is too large to travel.
    """
    sizes = {
        name: sum(file.stat().st_size for file in into.glob(pattern))
        for name, pattern in (("wheels", "wheels/*"), ("parts", "parts/*"))
    }
    for file in sorted(into.glob("[wp]*/*")):
        print(f"{file.stat().st_size / 1e6:8.2f} MB  {file.relative_to(into)}")
    print(f"{sum(sizes.values()) / 1e6:8.2f} MB  in {into}")
    if _run(["git", "-C", str(ROOT), "status", "--porcelain"]):
        print("changes that are not committed are not in it")
    if sum(sizes.values()) > MAX_BYTES:
        raise ConfigError(f"{into}: more than {MAX_BYTES / 1e6:.0f} MB; pack fewer parts")


def _run(command: list[str]) -> str:
    """Return the output of a command.

    Raises:
        ConfigError: it fails; with the last line that it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ConfigError(f"{' '.join(command[:5])} …: {lines[-1]}")
    return done.stdout


if __name__ == "__main__":
    main()

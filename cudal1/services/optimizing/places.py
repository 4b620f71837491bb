"""The files that `cudal1 optimize` reads and leaves: a module, and what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cudal1.errors import StoreError, SuiteError
from cudal1.files.text_file import mode_of, read_python
from cudal1.kept import SUFFIX, Kept, judged_source
from cudal1.origin import origin_of, stem_of
from cudal1.problem import DeviceClass
from cudal1.program.backends import Backend, kernels_by_backend
from cudal1.record import content_id
from cudal1.suite.modules import load_module


@dataclass(frozen=True)
class Places:
    """Paths that follow from a module's: of `model.py` `model.faster.py` and so on."""

    module: Path

    @property
    def version(self) -> Path:
        """Return the file of the best proven version."""
        return self._beside(".faster.py")

    @property
    def record(self) -> Path:
        """Return the file of its record."""
        return self._beside(SUFFIX)

    @property
    def report(self) -> Path:
        """Return the page's file."""
        return self._beside(".report.html")

    @property
    def ledger(self) -> Path:
        """Return the folder of the search's ledger."""
        return self._beside(".optimize")

    @property
    def unanswered(self) -> Path:
        """Return the folder of requests that may have no answer yet."""
        return self.ledger / "asked"

    def kept(self) -> Kept | None:
        """Return the record of the version that an earlier run kept; None without one.

        Raises:
            StoreError: a file has the name of ours, and was not written by this command, or was
                changed since.
        """
        if not self.version.exists() and not self.record.exists():
            return None
        remedy = "move it away, since its name is that of the version to be kept"
        try:
            kept = Kept.model_validate_json(self.record.read_text(encoding="utf-8"))
            source = self.version.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self.version}: was not kept by cudal1 optimize; {remedy}"
            ) from error
        if content_id(judged_source(source)) != kept.candidate_source_id:
            raise StoreError(f"{self.version}: was changed after it was proven; {remedy}")
        return kept

    def refuse_another_language(self, backend: Backend) -> None:
        """Refuse to search for kernels of a language beside a kept version without any.

        Raises:
            StoreError: the kept version shows no kernel in it.
        """
        if self.kept() is None:
            return
        source = judged_source(self.version.read_text(encoding="utf-8"))
        if backend not in kernels_by_backend(source):
            raise StoreError(
                f"{self.version}: has no kernel in {backend}; move it and its record away, or "
                "leave out --backend"
            )

    def _beside(self, suffix: str) -> Path:
        return self.module.with_name(self.module.name.removesuffix(".py") + suffix)


def file_of_class(
    typed: Path, *, inputs: Path | None, folder: Path | None, device_class: DeviceClass
) -> Path:
    """Return the problem file of a class, which is written beside the file of its inputs.

    The arguments are those of `load_module`.

    Raises:
        SuiteError: as `load_module`; or a file of this name is there that was not written so.
        StoreError: it cannot be written.
    """
    problem = load_module(typed, inputs=inputs, folder=folder, device_class=device_class)
    assert inputs is not None
    path = inputs.with_name(f"{stem_of(str(typed).partition(':')[2])}.py")
    if mode_of(path):
        there = read_python(path, raising=SuiteError)
        if there == problem.source:
            return path
        if origin_of(there) is None:
            raise SuiteError(
                f"{path}: was not written from {typed}; move it away, since its name is that of "
                "the problem to be written"
            )
    written(path, problem.source)
    return path


def written(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        StoreError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        try:
            partial.write_text(text, encoding="utf-8", newline="\n")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error

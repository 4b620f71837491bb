"""A version as one proof has it: its files, what it may replace, and how it is built."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from cudal1.applying import records
from cudal1.applying.loading import load, undrawn
from cudal1.applying.matching import difference, tie
from cudal1.errors import CudaL1Error, SuiteError, describe
from cudal1.files.text_file import read_python
from cudal1.kept import Kept, Proof, class_source_id
from cudal1.problem import DeviceClass
from cudal1.protocol import Contract, Mode
from cudal1.record import content_id
from cudal1.verdict import RESTRICTING, SEEN


class Proven:
    """A version that was proven on one problem.

    Args:
        record: path of its record.
        kept: the record.
        proof: one of its proofs.

    Raises:
        SuiteError: the files are not those that were proven, or the proof restricts its use.
    """

    def __init__(self, record: Path, kept: Kept, proof: Proof) -> None:
        self._problem_path = records.beside(record, proof.problem)
        self._problem = read_python(self._problem_path, raising=SuiteError)
        self._source = records.read_version(record, kept)
        self._kept, self._proof = kept, proof
        self._init_inputs: list[Any] = []
        self._reference: nn.Module | None = None
        self.path = records.beside(record, kept.version)
        self.inputs = proof.inputs
        self.device_type = "cuda" if proof.device_class is DeviceClass.CUDA else "cpu"
        self.device_kind = proof.verdict.device_kind
        self.precision = proof.protocol.precision
        self.training = False
        if content_id(self._problem) != proof.problem_id:
            raise SuiteError(f"{self._problem_path}: was changed since; cudal1 check judges it")
        if content_id(self._source) != kept.candidate_source_id:
            raise SuiteError(f"{self.path}: was edited since; cudal1 check judges it")
        if not records.is_of(proof, proof.problem_id, self._source):
            raise SuiteError(f"{record}: its proof is of another version; write it anew")
        if said := restriction(proof):
            raise SuiteError(f"{self.path}: {said}")

    def changed_versions(self) -> str | None:
        """Return what has another version than it was proven with; None: nothing that matters."""
        proven = self._proof.versions.get("torch")
        if proven in (None, torch.__version__):
            return None
        return f"proven with torch {proven}, and this is {torch.__version__}: run cudal1 check"

    def refusal(self, live: nn.Module) -> str | None:
        """Return why it cannot replace a module of its class; None: it can."""
        if said := self._of_another_class(type(live)):
            return said
        has_weights = any(True for _ in (*live.parameters(), *live.buffers()))
        seen = self._proof.verdict.properties
        if has_weights and not (seen and seen.follows_weights):
            return "it was not seen to follow weights that are loaded by name"
        try:
            if self._reference is None:
                self._reference = self._constructed_reference()
            said = difference(live, self._reference)
            if said is not None:
                return f"the module is not as it was proven: {said}"
            self.built(live)
        except CudaL1Error as error:
            return str(error)
        return None

    def built(self, live: nn.Module) -> nn.Module:
        """Return the version as a module that computes with a live module's weights.

        Raises:
            SuiteError: it cannot compute with them; the message says why.
        """
        make = _found(load(self._source, self.path.name), "ModelNew", self.path)
        try:
            with undrawn():
                version = make(*self._init_inputs)
        except Exception as error:  # a version may raise anything
            raise SuiteError(f"{self.path}: cannot be constructed ({describe(error)})") from error
        if not isinstance(version, nn.Module):
            raise SuiteError(f"{self.path}: ModelNew is no torch.nn.Module")
        self._in_mode(version)
        if said := tie(version, live):
            raise SuiteError(f"{self.path}: cannot take the module's weights: {said}")
        return version

    def forget_reference(self) -> None:
        """Give back the memory of the reference."""
        self._reference = None

    def _constructed_reference(self) -> nn.Module:
        module = load(self._problem, self._problem_path.name)
        make = _found(module, "Model", self._problem_path)
        try:
            with undrawn():
                self._init_inputs = list(_found(module, "get_init_inputs", self._problem_path)())
                reference = _constructed(make, self._init_inputs)
        except Exception as error:  # a problem's own code may raise anything
            said = f"{self._problem_path}: cannot be constructed ({describe(error)})"
            raise SuiteError(said) from error
        self._in_mode(reference)
        self.training = reference.training
        return reference

    def _in_mode(self, module: nn.Module) -> None:
        if self._proof.protocol.mode is not Mode.CONSTRUCTED:
            module.train(self._proof.protocol.mode is Mode.TRAIN)

    def _of_another_class(self, live: type[nn.Module]) -> str | None:
        proven = self._kept.replaces_source_id
        if proven is None:
            return "its record does not say which source of the class was proven (kept.py)"
        try:
            source = inspect.getsource(live)
        except (OSError, TypeError):
            return "the source of the class cannot be read, so it may be another than was proven"
        if class_source_id(source) != proven:
            return "the class is not the one that was proven: its source was changed since"
        return None


def _constructed(make: Any, arguments: list[Any]) -> Any:
    """Return a module without memory for its weights, if its constructor can do without."""
    try:
        with torch.device("meta"):
            return make(*arguments)
    except Exception:  # noqa: BLE001 -- a constructor may look at values
        return make(*arguments)


def _found(module: ModuleType, name: str, path: Path) -> Any:
    if not hasattr(module, name):
        raise SuiteError(f"{path}: has no {name}")
    return getattr(module, name)


def restriction(proof: Proof) -> str | None:
    """Return why a version may not replace its reference in any program; None: it may."""
    verdict = proof.verdict
    if not verdict.is_successful or verdict.properties is None:
        return "its verdict is no success"
    if verdict.is_unsafe:
        return "it was judged without a sandbox"
    if proof.invariants:
        return f"it was proven only for inputs of a kind: {'; '.join(proof.invariants)}"
    for name in RESTRICTING:
        seen = getattr(verdict.properties, name)
        if seen is False:
            return f"it {SEEN[name, False]}"
        is_duty = proof.protocol.contract is Contract.DROP_IN
        if seen is None and name != "follows_weights" and not is_duty:
            return f"it is not known whether it {SEEN[name, True]}"
    return None

"""Baselines: ways of running the reference, each written as a candidate for it.

Each baseline is timed like a candidate: by the same clock, against the eager reference, in the
sandbox and with every output compared. A candidate's speedup over a baseline is the ratio of their
speedups over eager; the baseline's is read upwards (`Measurement.at_most`).
"""

from __future__ import annotations

from enum import StrEnum

from cudal1.candidate import Candidate
from cudal1.problem import DeviceClass, Problem


class Baseline(StrEnum):
    """A way of running the reference that candidates are compared with."""

    EAGER = "eager"
    """The reference unchanged: the null test."""
    COMPILE = "compile"
    """`torch.compile` with its default settings."""
    REDUCE_OVERHEAD = "reduce_overhead"
    """`torch.compile` with mode `reduce-overhead`, which replays CUDA graphs."""
    CUDA_GRAPH = "cuda_graph"
    """One graph of the whole module, captured at its first call."""
    CUDNN_TF32 = "cudnn_tf32"
    """Run with cuDNN's fastest algorithms, and with TF32 wherever PyTorch may use it. Under the
    strict class this baseline is correct only where TF32 changes nothing."""


ANYWHERE = frozenset({Baseline.EAGER, Baseline.COMPILE})
"""Baselines that run on every device; the others need a GPU."""
_MARK = "\n\n# {}: the reference, judged as a baseline\n"
_SOURCES = {
    Baseline.COMPILE: """

class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compile()
""",
    Baseline.REDUCE_OVERHEAD: """
import torch as _torch
from torch.utils import _pytree


class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compile(mode="reduce-overhead")

    def __call__(self, *inputs):
        _torch.compiler.cudagraph_mark_step_begin()
        # a replay writes where the one before it did
        return _pytree.tree_map(_torch.clone, super().__call__(*inputs))
""",
    Baseline.CUDA_GRAPH: """
import torch as _torch
from torch.utils import _pytree


class ModelNew(Model):
    _graph = None

    def __call__(self, *inputs):
        if self._graph is None:
            self._capture(inputs)
        for mine, given in zip(self._inputs, inputs):
            mine.copy_(given)
        self._graph.replay()
        # a replay writes where the one before it did
        return _pytree.tree_map(_torch.clone, self._outputs)

    def _capture(self, inputs):
        self._inputs = [given.clone() for given in inputs]
        beside = _torch.cuda.Stream()
        beside.wait_stream(_torch.cuda.current_stream())
        with _torch.cuda.stream(beside):
            for _ in range(3):
                super().__call__(*self._inputs)
        _torch.cuda.current_stream().wait_stream(beside)
        graph = _torch.cuda.CUDAGraph()
        with _torch.cuda.graph(graph):
            self._outputs = super().__call__(*self._inputs)
        self._graph = graph
""",
    Baseline.CUDNN_TF32: """
import torch as _torch

_torch.backends.cudnn.benchmark = True
_torch.backends.cudnn.allow_tf32 = True
_torch.backends.cuda.matmul.allow_tf32 = True


class ModelNew(Model):
    pass
""",
}


def as_candidate(problem: Problem, baseline: Baseline) -> Candidate:
    """Return the problem's reference as a candidate that runs it the baseline's way."""
    if baseline is Baseline.EAGER:
        source = problem.null_source + _MARK.format(baseline)
    else:
        source = problem.source + _MARK.format(baseline) + _SOURCES[baseline]
    return Candidate(problem_id=problem.id, source=source)


def on(device_class: DeviceClass) -> list[Baseline]:
    """Return the baselines that run on devices of a class."""
    return [each for each in Baseline if device_class is DeviceClass.CUDA or each in ANYWHERE]

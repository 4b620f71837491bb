"""Baselines: ways of running the reference, each written as a candidate for it.

So the clock that times a candidate times them all, each against the eager reference, in the sandbox
and with every output compared. A candidate's speedup over one of them is the ratio of what both
have over eager, the baseline's read upwards (`Measurement.at_most`).
"""

from __future__ import annotations

from enum import StrEnum

from cudal1.candidate import Candidate
from cudal1.problem import DeviceClass, Problem


class Baseline(StrEnum):
    """A way of running the reference that candidates are compared with."""

    EAGER = "eager"
    """As it is: the null test."""
    COMPILE = "compile"
    """`torch.compile` as it comes."""
    REDUCE_OVERHEAD = "reduce_overhead"
    """`torch.compile` with that mode, which replays CUDA graphs."""
    CUDA_GRAPH = "cuda_graph"
    """One graph of the whole module, captured at its first call."""
    CUDNN_TF32 = "cudnn_tf32"
    """cuDNN's fastest algorithms, and TF32 wherever PyTorch may use it: correct under the strict
    class only where that changes nothing."""


ANYWHERE = frozenset({Baseline.EAGER, Baseline.COMPILE})
"""The others need a GPU."""
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
    """The problem's reference, run that way."""
    if baseline is Baseline.EAGER:
        source = problem.null_source + _MARK.format(baseline)
    else:
        source = problem.source + _MARK.format(baseline) + _SOURCES[baseline]
    return Candidate(problem_id=problem.id, source=source)


def on(device_class: DeviceClass) -> list[Baseline]:
    """Those that such a device can run."""
    return [each for each in Baseline if device_class is DeviceClass.CUDA or each in ANYWHERE]

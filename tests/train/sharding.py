"""Run `cudal1.train.group.member` so that it shards on a CPU, too.

accelerate shards (FSDP2) on accelerators alone. On a CPU it silently accepts `fsdp.yaml` and gives
each process all weights (`AcceleratorState`). PyTorch can shard there, over gloo.
"""

from __future__ import annotations

from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

from cudal1.train.group import member

_begin = AcceleratorState.__init__


def _begin_sharded(self: Any, *given: Any, fsdp_plugin: Any = None, **named: Any) -> None:
    is_first = not AcceleratorState._shared_state
    _begin(self, *given, fsdp_plugin=fsdp_plugin, **named)
    if is_first and fsdp_plugin is not None and self.distributed_type is DistributedType.MULTI_CPU:
        self.fsdp_plugin = fsdp_plugin
        self.distributed_type = DistributedType.FSDP
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP


AcceleratorState.__init__ = _begin_sharded

if __name__ == "__main__":
    member.main()

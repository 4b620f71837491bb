"""World 1: device processes and untrusted code. `docs/protocol.md` says how a verdict is made."""

from cudal1.harness.device import Device, find_device
from cudal1.harness.facts import facts_of
from cudal1.harness.pool import Judgement, Pool

__all__ = ["Device", "Judgement", "Pool", "facts_of", "find_device"]

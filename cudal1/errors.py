"""Our own failures; a fault of a candidate or a completion is data and never raised as one.

    CudaL1Error
    ├── ConfigError      params.yaml, dvc.yaml or an argument says something we cannot do
    │   └── ConsentError        the run would have to pay and is not allowed to
    ├── SuiteError       a problem suite cannot be read
    │   ├── UnfitError          a problem cannot be judged at all
    │   └── CrowdedError        a problem cannot be judged beside others on a device
    ├── DeviceError      the device that was asked for is absent or busy
    │   └── DeviceLostError     the device computes nothing after an error
    ├── WorkerError      the machinery around a candidate broke (not the candidate)
    ├── SandboxError     this machine has too few sandbox layers for a candidate
    ├── ProviderError    a provider is misconfigured or refuses us, such as for a missing key
    │   ├── ProviderDownError   the provider cannot be reached, or does not answer
    │   └── BudgetError         another request could cost more than was allowed
    ├── StoreError       the ledger, a shard or the disk under them cannot be used
    └── TrainingError    weights or a checkpoint cannot be loaded or trained

Every message names the thing and the remedy, in one line: `tasks.stage` prints it and exits with 2.
"""

from __future__ import annotations


class CudaL1Error(Exception):
    """The root of our errors, caught in two places: `tasks.stage` and the command line."""


class ConfigError(CudaL1Error):
    """A parameter or argument is wrong; the message gives its dotted path."""


class ConsentError(ConfigError):
    """The run would have to pay a provider, and was not allowed to; nothing was asked."""


class SuiteError(CudaL1Error):
    """A problem suite or one of its files cannot be read; the message names the file."""


class UnfitError(SuiteError):
    """A problem cannot be judged; its trial says why.

    Args:
        said: the reason, with the problem's name.
        found: all that the trial has found.
    """

    def __init__(self, said: str, found: object = None) -> None:
        super().__init__(said)
        self.found = found


class CrowdedError(SuiteError):
    """A problem cannot be judged beside others on a device: they may hold the memory it needs.

    Args:
        said: the reason, with the problem's name.
        share: part of the device's memory that it needs, as far as that is known; 0: it is not.
    """

    def __init__(self, said: str, share: float = 0.0) -> None:
        super().__init__(said)
        self.share = share


class CrowdedCandidateError(CrowdedError):
    """A candidate reports that it lacks memory; the report may be false and concerns it alone."""


class DisturbedError(CrowdedError):
    """Work on a device that others have begun, or a candidate itself, does not end."""


class DeviceError(CudaL1Error):
    """A device is absent, busy or lost."""


class DeviceLostError(DeviceError):
    """A device computes nothing after an error; its last results say nothing of a candidate."""


class WorkerError(CudaL1Error):
    """The harness itself failed; no verdict can be given."""


class SandboxError(CudaL1Error):
    """Fewer layers than the minimum hold around a worker; the message names the missing ones."""


class ProviderError(CudaL1Error):
    """A provider is misconfigured or refuses us; the two errors below are special cases."""


class ProviderDownError(ProviderError):
    """A provider cannot be reached, or fails one request after the other; a retry may succeed."""


class BudgetError(ProviderError):
    """Another request could cost more than is left of the provider's budget."""


class StoreError(CudaL1Error):
    """The ledger or a shard is locked, corrupt or out of disk."""


class TrainingError(CudaL1Error):
    """A policy, a checkpoint or a training step cannot be used."""


MAX_DESCRIBED = 300
"""Characters of an error that a line shows."""


def describe(error: BaseException) -> str:
    """Return `Kind: message` in one line, even if the error's own text raises."""
    try:
        said = str(error)
    except Exception as raised:  # noqa: BLE001 -- the class may be a third party's
        said = f"(its text raises {type(raised).__name__})"
    kind = type(error).__name__
    line = " ".join("".join(c if c.isprintable() else " " for c in said).split())
    return (f"{kind}: {line}" if line else kind)[:MAX_DESCRIBED]

"""The answer of a problem's process: what was seen, or the reason why nothing was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudal1.errors import CrowdedError, CudaL1Error, DeviceLostError, describe
from cudal1.harness.admission.required import RejectedError


def answered(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a look sees; an error that the problem raises becomes its reason.

    Raises:
        CrowdedError: other judges share the memory, and nothing was seen yet.
        SystemExit: raised by the problem itself; it ends the process.
    """
    try:
        return {"reason": None, **look()}
    except CrowdedError:
        raise
    except RejectedError as rejected:
        return {"reason": str(rejected), "lasts": rejected.lasts}
    except DeviceLostError as error:
        return {"reason": str(error), "is_lost": True}
    except CudaL1Error as error:
        return {"reason": str(error)}
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 -- a third party's code may raise anything
        return {"reason": f"raises {describe(error)}"}

"""What a problem's process answers of it: what was seen, or the reason why nothing was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudal1.errors import CudaL1Error, DeviceLostError, describe
from cudal1.services.required import RejectedError


def answered(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a look sees; whatever the problem raises is its reason.

    Raises:
        SystemExit: the problem's own, which ends its process.
    """
    try:
        return {"reason": None, **look()}
    except RejectedError as rejected:
        return {"reason": str(rejected), "lasts": rejected.lasts}
    except DeviceLostError as error:
        return {"reason": str(error), "is_lost": True}
    except CudaL1Error as error:
        return {"reason": str(error)}
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 -- somebody else's code may raise anything
        return {"reason": f"raises {describe(error)}"}

"""Asking an isolated process for a function of a test: it cannot import tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import cloudpickle

CALL = "__import__('pickle').loads(content)()"


def submit(process: Executor, function: Callable[[], Any]) -> Future[Any]:
    """Have the process call a function whose code travels along."""
    module = sys.modules[function.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        content = cloudpickle.dumps(function)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return process.submit(eval, CALL, {"content": content})

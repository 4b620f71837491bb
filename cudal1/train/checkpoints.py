"""Handle checkpoints, logs and library output for both trainers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

OnLog = Callable[[int, Mapping[str, float]], None]
TRAINER_STATE = "trainer_state.json"
"""The file of a checkpoint that a trainer writes last."""


def latest_checkpoint(work: Path, *, last_file: str = TRAINER_STATE) -> Path | None:
    """Return the newest complete checkpoint: `last_file`, which is written last, exists.

    A checkpoint that a kill left half-written is passed over.
    """
    found = sorted(
        (path for path in work.glob("checkpoint-*") if path.name.split("-")[1].isdigit()),
        key=lambda path: int(path.name.split("-")[1]),
    )
    whole = [path for path in found if (path / last_file).is_file()]
    return whole[-1] if whole else None


def log_callback(on_log: OnLog) -> Any:
    """Return a trainer callback that passes every logged number on."""
    from transformers import TrainerCallback

    class _Log(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            numbers = {
                name: float(value)
                for name, value in (logs or {}).items()
                if isinstance(value, int | float) and not name.startswith("train_")
            }
            if numbers:
                on_log(state.global_step, numbers)

    return _Log()


class _AllMade(Exception):
    """A checkpoint already holds every step."""


def train_from(trainer: Any, resumed: Path | None) -> None:
    """Make the steps that follow those of a checkpoint.

    Where no step is left, only the checkpoint's weights are loaded. transformers alone would make
    one more step before it checks the number of steps.
    """
    from transformers import TrainerCallback

    class _Enough(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step >= state.max_steps:
                raise _AllMade

    trainer.add_callback(_Enough())
    with suppress(_AllMade):
        trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)


def without_printing(trainer: Any) -> Any:
    """Return the trainer without the callback that prints every log line."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    return trainer


def quiet() -> None:
    """Keep the libraries' banners and bars out of our output."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("trl").setLevel(logging.ERROR)
    logging.getLogger("datasets").setLevel(logging.WARNING)  # logs the libraries it has found

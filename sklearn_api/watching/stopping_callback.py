"""Early stopping as LightGBM has it, a callback: it stands for the parameters that ask for it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from dmlgbm.gbdt.callbacks import TrainingState


@dataclass(frozen=True)
class EarlyStoppingCallback:
    """The parameters, and a callback that says why a run has ended."""

    parameters: dict[str, Any]
    verbose: bool

    def __call__(self, state: TrainingState) -> None:
        """Called after early stopping has spoken."""
        if state.stop_reason is not None:
            sys.stderr.write(f"[{state.iteration}] {state.stop_reason}\n")


def early_stopping(
    stopping_rounds: int, first_metric_only: bool = False, verbose: bool = True, min_delta: float = 0.0
) -> EarlyStoppingCallback:
    """Stop when a metric of an evaluation set has not improved by `min_delta` for so many iterations.

    With `verbose`, the reason is printed, to stderr.
    """
    parameters = {
        "early_stopping": True,
        "early_stopping_rounds": stopping_rounds,
        "early_stopping_min_delta": min_delta,
        "first_metric_only": first_metric_only,
    }
    return EarlyStoppingCallback(parameters, verbose)

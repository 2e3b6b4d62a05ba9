"""A model that ends its process once in the middle of a fit; Spark's workers import it from here."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlgbm.neural import DMLMLPClassifier


@dataclass(frozen=True)
class DyingBlueprint:
    """The blueprint of a network; the process that makes gradient `n_steps` first is killed, and leaves the marker."""

    blueprint: Any
    marker: Path
    n_steps: int

    def build(self) -> Any:
        model = self.blueprint.build()
        compute, n_done = model.compute_gradients, 0

        def compute_or_die(*arguments: Any) -> float:
            nonlocal n_done
            n_done += 1
            if n_done == self.n_steps and not self.marker.exists():
                self.marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return compute(*arguments)

        model.compute_gradients = compute_or_die
        return model


class DyingClassifier(DMLMLPClassifier):
    """Loses a rank in its third epoch of ten steps."""

    marker: Path

    def _blueprint(self, *arguments: Any) -> Any:
        return DyingBlueprint(super()._blueprint(*arguments), self.marker, 25)

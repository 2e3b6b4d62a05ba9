"""Where training starts: from nothing, from another model (`init_model`) or from what is there (`warm_start`)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gbdt.booster import Booster
from gbdt.parameters import ParameterError


@dataclass(frozen=True)
class Start:
    """The model to add to, and how many of its iterations count towards `n_estimators`."""

    booster: Booster | None = None
    n_counted: int = 0
    classes: list[Any] | None = None

    def iterations_to_add(self, n_estimators: int) -> int:
        """`n_estimators` is how many to add to an init_model, and the total with warm_start."""
        if n_estimators <= self.n_counted:
            raise ParameterError(
                f"n_estimators={n_estimators} asks for no more than the {self.n_counted} iterations that warm_start=True "
                "goes on from: set it higher."
            )
        return n_estimators - self.n_counted


def starting_point(init_model: Any, own: Booster | None) -> Start:
    """An explicit init_model comes before `own`, the booster of an estimator with warm_start."""
    if init_model is None:
        return Start() if own is None else Start(own, own.n_iterations)
    if isinstance(init_model, Booster):
        return Start(init_model)
    if isinstance(init_model, str | os.PathLike):
        return Start(Booster.from_bytes(Path(init_model).read_bytes()))
    booster = getattr(init_model, "booster_", None)
    if isinstance(booster, Booster):
        return Start(booster)
    raise TypeError(
        f"init_model must be a fitted estimator, a Booster or the path of a model file, got {init_model!r}."
    )

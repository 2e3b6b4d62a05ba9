"""The numbers that some losses have besides `alpha`, for the objectives and metrics of the same names."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgbm.gbdt.parameters import ParameterError


@dataclass(frozen=True)
class LossConstants:
    """Checked when it is made, whatever the objective."""

    fair_c: float = 1.0
    tweedie_variance_power: float = 1.5
    focal_gamma: float = 2.0
    focal_alpha: float = 0.25

    def __post_init__(self) -> None:
        _require("fair_c", self.fair_c, 0.0 < self.fair_c < math.inf, "a positive number")
        power = self.tweedie_variance_power
        _require("tweedie_variance_power", power, 1.0 <= power < 2.0, "from 1 to less than 2 (2 is objective 'gamma')")
        _require("focal_gamma", self.focal_gamma, 0.0 <= self.focal_gamma < math.inf, "a number of at least 0")
        _require("focal_alpha", self.focal_alpha, 0.0 < self.focal_alpha < 1.0, "above 0 and below 1")


def _require(name: str, value: float, is_valid: bool, expected: str) -> None:
    if not is_valid:
        raise ParameterError(f"{name}={value!r} is out of range: it must be {expected}.")

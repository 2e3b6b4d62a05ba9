"""The learning rate as a function of the step: pure, so that every rank and every resumed run agrees on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

ScheduleName: TypeAlias = Literal["constant", "step", "cosine", "linear", "invscaling"]
SCHEDULES: tuple[str, ...] = get_args(ScheduleName)


@dataclass(frozen=True)
class Schedule:
    """`rate` at the beginning, after a linear warm-up of `warmup_steps`; then as `name` says, until `n_steps`.

    step: a tenth after half of the steps and a hundredth after three quarters. cosine, linear: down to 0.
    invscaling: rate / sqrt(step).
    """

    name: str
    rate: float
    n_steps: int
    warmup_steps: int = 0

    def at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.rate * (step + 1) / self.warmup_steps
        if self.name == "constant":
            return self.rate
        if self.name == "invscaling":
            return self.rate / math.sqrt(step + 1 - self.warmup_steps)
        done = min(1.0, (step - self.warmup_steps) / max(1, self.n_steps - self.warmup_steps))
        if self.name == "step":
            return self.rate * (1.0 if done < 0.5 else 0.1 if done < 0.75 else 0.01)
        if self.name == "cosine":
            return self.rate * 0.5 * (1.0 + math.cos(math.pi * done))
        return self.rate * (1.0 - done)

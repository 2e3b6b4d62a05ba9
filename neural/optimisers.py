"""Optimisers: functions of flat vectors, with state that is flat vectors too.

`step` changes parameters in place from gradients. Everything an optimiser knows besides its settings is in `state`
(arrays of the size of the parameters, or scalars), so commits, averages and servers can carry it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dmlgbm.neural.kernels.compiler import prepare
from dmlgbm.neural.kernels.optimiser_steps import adam_direction, adam_step, momentum_step, nesterov_step
from dmlgbm.neural.model import FloatArray, ParameterPart


@dataclass
class Optimiser(ABC):
    """Subclasses are dataclasses: fields are settings. `begin` is called once, before the first step."""

    name: ClassVar[str]
    state: dict[str, FloatArray] = field(init=False, default_factory=dict)
    n_steps: int = field(init=False, default=0)

    def begin(self, parameters: FloatArray, parts: Sequence[ParameterPart]) -> None:
        """Make state for this vector; what there was is forgotten."""
        self.parts = tuple(parts)
        self.n_steps = 0
        self.state = {name: np.zeros_like(parameters) for name in self.vectors()}

    def vectors(self) -> tuple[str, ...]:
        """The names of the vectors in `state`."""
        return ()

    @abstractmethod
    def step(self, parameters: FloatArray, gradients: FloatArray, learning_rate: float) -> None:
        """One step; `gradients` may be overwritten."""

    def saved(self) -> dict[str, Any]:
        """A copy of the state."""
        return {"n_steps": self.n_steps, **{name: vector.copy() for name, vector in self.state.items()}}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `saved` returned."""
        self.n_steps = int(saved["n_steps"])
        for name, vector in self.state.items():
            vector[...] = saved[name]


@dataclass
class SGD(Optimiser):
    """Plain steps, or with (Nesterov) momentum: velocity = momentum * velocity - rate * gradient."""

    name = "sgd"
    momentum: float = 0.0
    nesterov: bool = False

    def vectors(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def begin(self, parameters: FloatArray, parts: Sequence[ParameterPart]) -> None:
        super().begin(parameters, parts)
        if self.momentum:
            zero = parameters.dtype.type(0)
            prepare(self._kernel, parameters, parameters, self.state["velocity"], zero, zero)

    @property
    def _kernel(self) -> Callable[..., None]:
        return nesterov_step if self.nesterov else momentum_step

    def step(self, parameters: FloatArray, gradients: FloatArray, learning_rate: float) -> None:
        self.n_steps += 1
        if self.momentum:
            number = parameters.dtype.type
            velocity = self.state["velocity"]
            self._kernel(parameters, gradients, velocity, number(self.momentum), number(learning_rate))
        else:
            gradients *= learning_rate
            parameters -= gradients


@dataclass
class Adam(Optimiser):
    """Adam with bias correction; `weight_decay` is taken apart from the gradient (AdamW) where it is not 0."""

    name = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def vectors(self) -> tuple[str, ...]:
        return ("first", "second")

    def begin(self, parameters: FloatArray, parts: Sequence[ParameterPart]) -> None:
        super().begin(parameters, parts)
        zero = parameters.dtype.type(0)
        prepare(self._kernel, parameters, parameters, *self.state.values(), zero, zero, zero, zero, zero)

    @property
    def _kernel(self) -> Callable[..., None]:
        return adam_step

    def step(self, parameters: FloatArray, gradients: FloatArray, learning_rate: float) -> None:
        self.n_steps += 1
        if not self.weight_decay:
            self._run_kernel(slice(None), parameters, gradients, learning_rate, 1.0)
            return
        for part in self.parts:
            kept = 1.0 - learning_rate * self.weight_decay if part.decays else 1.0
            self._run_kernel(slice(part.start, part.stop), parameters, gradients, learning_rate, kept)

    def _run_kernel(
        self, stretch: slice, parameters: FloatArray, gradients: FloatArray, rate: float, last: float
    ) -> None:
        """One stretch of the vectors; `last` is the kernel's last argument.

        The state leaves out the factors that make sums into moments: m = (1 - beta_1) * first, and v likewise.
        These, and the corrections for the start at 0, become two scalars.
        """
        second_scale = math.sqrt((1.0 - self.beta_2) / (1.0 - self.beta_2**self.n_steps))
        first_scale = (1.0 - self.beta_1) / (1.0 - self.beta_1**self.n_steps)
        number = parameters.dtype.type
        self._kernel(
            parameters[stretch],
            gradients[stretch],
            self.state["first"][stretch],
            self.state["second"][stretch],
            number(self.beta_1),
            number(self.beta_2),
            number(self.epsilon / second_scale),
            number(rate * first_scale / second_scale),
            number(last),
        )


@dataclass
class AdamW(Adam):
    """Adam with decoupled weight decay."""

    name = "adamw"
    weight_decay: float = 0.01


@dataclass
class LAMB(Adam):
    """AdamW whose step has, for every weight matrix, the length of that matrix times the learning rate."""

    name = "lamb"
    epsilon: float = 1e-6
    weight_decay: float = 0.01

    @property
    def _kernel(self) -> Callable[..., None]:
        return adam_direction

    def step(self, parameters: FloatArray, gradients: FloatArray, learning_rate: float) -> None:
        self.n_steps += 1
        for part in self.parts:
            stretch, ratio = slice(part.start, part.stop), 1.0
            # The gradients are not needed afterwards: the step takes their place.
            self._run_kernel(stretch, parameters, gradients, 1.0, self.weight_decay if part.decays else 0.0)
            weights, move = parameters[stretch], gradients[stretch]
            if part.decays:
                length, stride = float(np.linalg.norm(weights)), float(np.linalg.norm(move))
                ratio = length / stride if length > 0 and stride > 0 else 1.0
            move *= learning_rate * ratio
            weights -= move


OPTIMISERS: dict[str, type[Optimiser]] = {kind.name: kind for kind in (SGD, Adam, AdamW, LAMB)}

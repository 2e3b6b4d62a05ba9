"""Optimisers: functions of flat vectors, with state that is flat vectors too.

`step` changes parameters in place from gradients. Everything an optimiser knows besides its settings is in `state`
(arrays of the size of the parameters, or scalars), so commits, averages and servers can carry it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from neural.model import FloatArray, ParameterPart

# Many passes over a block that stays in the cache cost less than as many over the whole vector.
_BLOCK = 1 << 14


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
        self._room = np.empty(_BLOCK, parameters.dtype)

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

    def step(self, parameters: FloatArray, gradients: FloatArray, learning_rate: float) -> None:
        self.n_steps += 1
        gradients *= learning_rate
        if not self.momentum:
            parameters -= gradients
            return
        velocity = self.state["velocity"]
        velocity *= self.momentum
        velocity -= gradients
        if self.nesterov:
            parameters -= gradients
            np.multiply(velocity, self.momentum, out=gradients)
            parameters += gradients
        else:
            parameters += velocity


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

    def step(self, parameters: FloatArray, gradients: FloatArray, learning_rate: float) -> None:
        if self.weight_decay:
            for part in self.parts:
                if part.decays:
                    parameters[part.start : part.stop] *= 1.0 - learning_rate * self.weight_decay
        for block, direction in self._directions(gradients, learning_rate):
            parameters[block] -= direction

    def _directions(self, gradients: FloatArray, rate: float) -> Iterator[tuple[slice, FloatArray]]:
        """rate * m / (sqrt(v) + epsilon), block by block, in room that is used again; gradients are overwritten.

        The state leaves out the factors that make sums into moments: m = (1 - beta_1) * first, and v likewise.
        These, and the corrections for the start at 0, become two scalars, which spares passes over the vectors.
        """
        self.n_steps += 1
        second_scale = math.sqrt((1.0 - self.beta_2) / (1.0 - self.beta_2**self.n_steps))
        first_scale = (1.0 - self.beta_1) / (1.0 - self.beta_1**self.n_steps)
        for start in range(0, len(gradients), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(gradients)))
            gradient, first, second = gradients[block], self.state["first"][block], self.state["second"][block]
            direction = self._room[: len(gradient)]
            first *= self.beta_1
            first += gradient
            gradient *= gradient
            second *= self.beta_2
            second += gradient
            np.sqrt(second, out=gradient)
            gradient += self.epsilon / second_scale
            np.divide(first, gradient, out=direction)
            direction *= rate * first_scale / second_scale
            yield block, direction


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

    def step(self, parameters: FloatArray, gradients: FloatArray, learning_rate: float) -> None:
        # The gradients are not needed once a block is through: the step takes their place.
        for block, direction in self._directions(gradients, 1.0):
            gradients[block] = direction
        for part in self.parts:
            weights, move = parameters[part.start : part.stop], gradients[part.start : part.stop]
            ratio = 1.0
            if part.decays:
                if self.weight_decay:
                    move += self.weight_decay * weights
                length, stride = float(np.linalg.norm(weights)), float(np.linalg.norm(move))
                ratio = length / stride if length > 0 and stride > 0 else 1.0
            move *= learning_rate * ratio
        parameters -= gradients


OPTIMISERS: dict[str, type[Optimiser]] = {kind.name: kind for kind in (SGD, Adam, AdamW, LAMB)}

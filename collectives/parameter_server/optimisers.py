"""What a push does to the values it is for: add, or take a step of an optimiser whose state lives on the server.

An optimiser works on a block of rows; its state is a stack of arrays like the values plus one step count a row, so a
dense array (one row) and chosen rows of a table go through the same lines. All arithmetic is elementwise in the dtype
of the values: the same pushes in the same order give the same bits on every replica.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.parameter_server.codec import Array


@dataclass(frozen=True)
class Optimiser:
    """`step` changes values (rows, width) and slots (SLOTS, rows, width) in place; `steps` counts this one already."""

    NAME: ClassVar[str]
    SLOTS: ClassVar[int] = 0
    # Whether the pushes of several workers for one step are averaged or added.
    AVERAGES: ClassVar[bool] = True
    ONLY_REAL: ClassVar[bool] = True
    # Whether values stay as they are where nothing but zeros is pushed.
    ZERO_KEEPS: ClassVar[bool] = True

    def step(self, values: Array, slots: Array, steps: Array, pushed: Array) -> None:
        raise NotImplementedError

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not np.isfinite(value) or value < 0:
                raise ValueError(f"{name} of {self.NAME} must be a finite number of at least 0, got {value}")


@dataclass(frozen=True)
class Sum(Optimiser):
    """Values become the sum of everything pushed."""

    NAME = "sum"
    AVERAGES = False
    ONLY_REAL = False

    def step(self, values: Array, slots: Array, steps: Array, pushed: Array) -> None:
        values += pushed


@dataclass(frozen=True)
class SGD(Optimiser):
    """value -= learning_rate * gradient."""

    NAME = "sgd"
    learning_rate: float

    def step(self, values: Array, slots: Array, steps: Array, pushed: Array) -> None:
        values -= values.dtype.type(self.learning_rate) * pushed


@dataclass(frozen=True)
class Momentum(Optimiser):
    """velocity = momentum * velocity + gradient; value -= learning_rate * velocity."""

    NAME = "momentum"
    SLOTS = 1
    ZERO_KEEPS = False
    learning_rate: float
    momentum: float = 0.9

    def step(self, values: Array, slots: Array, steps: Array, pushed: Array) -> None:
        number = values.dtype.type
        velocity = slots[0]
        velocity *= number(self.momentum)
        velocity += pushed
        values -= number(self.learning_rate) * velocity


@dataclass(frozen=True)
class Adagrad(Optimiser):
    """squares += gradient ** 2; value -= learning_rate * gradient / (sqrt(squares) + epsilon)."""

    NAME = "adagrad"
    SLOTS = 1
    learning_rate: float
    epsilon: float = 1e-10

    def step(self, values: Array, slots: Array, steps: Array, pushed: Array) -> None:
        number = values.dtype.type
        slots[0] += pushed * pushed
        values -= number(self.learning_rate) * pushed / (np.sqrt(slots[0]) + number(self.epsilon))


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam with bias correction; each row of a table has its own step count."""

    NAME = "adam"
    SLOTS = 2
    ZERO_KEEPS = False
    learning_rate: float = 1e-3
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta_1 >= 1 or self.beta_2 >= 1:
            raise ValueError(f"beta_1 and beta_2 of adam must be below 1, got {self.beta_1} and {self.beta_2}")

    def step(self, values: Array, slots: Array, steps: Array, pushed: Array) -> None:
        number = values.dtype.type
        mean, square = slots[0], slots[1]
        mean *= number(self.beta_1)
        mean += number(1 - self.beta_1) * pushed
        square *= number(self.beta_2)
        square += number(1 - self.beta_2) * (pushed * pushed)
        mean_scale = (1 - self.beta_1**steps).astype(values.dtype)[:, None]
        square_scale = (1 - self.beta_2**steps).astype(values.dtype)[:, None]
        values -= (
            number(self.learning_rate) * (mean / mean_scale) / (np.sqrt(square / square_scale) + number(self.epsilon))
        )


OPTIMISERS: dict[str, type[Optimiser]] = {kind.NAME: kind for kind in (Sum, SGD, Momentum, Adagrad, Adam)}


def settings_of(optimiser: Optimiser) -> tuple[float, ...]:
    """The numbers of an optimiser as they travel."""
    return tuple(float(value) for value in astuple(optimiser))


def optimiser_from(name: str, settings: tuple[float, ...]) -> Optimiser:
    """The optimiser that a peer or a file describes, or ProtocolError."""
    kind: Any = OPTIMISERS.get(name)
    if kind is None or len(settings) != len(fields(kind)):
        raise ProtocolError(f"no optimiser is called {name!r} and has {len(settings)} settings")
    try:
        return kind(*settings)
    except ValueError as error:
        raise ProtocolError(str(error)) from error

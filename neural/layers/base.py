"""What a layer is: settings until it is bound, then views into the flat vectors of its network.

A layer keeps from a forward pass what its backward pass needs, in buffers that the next batch uses again. It must
give the same calls of `pass_.sum_over_ranks` for a batch without rows as for any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.model import FloatArray, Inputs, Pass

# (key of the random numbers, shape) -> initial values
Initialiser = Callable[[int, tuple[int, ...]], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class ArrayBlueprint:
    """An array that a layer wants in a flat vector: name, shape, first values, and whether penalties concern it."""

    name: str
    shape: tuple[int, ...]
    initialise: Initialiser
    decays: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class LayerBlueprint:
    """What a layer makes of `n_inputs` columns: the width of its result and the arrays it needs."""

    n_outputs: int
    parameters: Sequence[ArrayBlueprint] = ()
    buffers: Sequence[ArrayBlueprint] = ()


class Layer(ABC):
    """Base of all layers. `bind` is called once, before any pass."""

    # Whether `forward` needs its output again in `backward`, so that the next layer must not overwrite it.
    needs_output: ClassVar[bool] = False

    name: str = ""
    parameters: Sequence[FloatArray] = ()
    gradients: Sequence[FloatArray] = ()
    buffers: Sequence[FloatArray] = ()
    # Whether this layer may write its output over its input; set by the network.
    may_overwrite: bool = False
    # False for the first layer of a network: nobody needs the gradient of the inputs.
    passes_gradient: bool = True
    seed: int = 0

    @abstractmethod
    def blueprint(self, n_inputs: int) -> LayerBlueprint:
        """What this layer needs for inputs of this width."""

    def bind(
        self, parameters: Sequence[FloatArray], gradients: Sequence[FloatArray], buffers: Sequence[FloatArray]
    ) -> None:
        """Take the views, in the order of the blueprint."""
        self.parameters, self.gradients, self.buffers = parameters, gradients, buffers

    @abstractmethod
    def forward(self, inputs: Inputs, pass_: Pass | None) -> FloatArray:
        """The output for a batch; `pass_` is None for predictions."""

    @abstractmethod
    def backward(self, gradient: FloatArray) -> FloatArray | None:
        """From the gradient of the output: fill own gradients, return that of the input. May overwrite `gradient`."""


class Room:
    """An array that is allocated once and handed out by its first rows."""

    def __init__(self) -> None:
        self._array: FloatArray | None = None

    def rows(self, n_rows: int, width: int, dtype: npt.DTypeLike) -> FloatArray:
        """An array of n_rows x width with any content."""
        if self._array is None or len(self._array) < n_rows or self._array.shape[1] != width:
            self._array = np.empty((n_rows, width), dtype)
        return self._array[:n_rows]


def zeros(key: int, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Initial values 0."""
    return np.zeros(shape)


def ones(key: int, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Initial values 1."""
    return np.ones(shape)

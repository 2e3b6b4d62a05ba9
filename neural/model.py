"""What every strategy knows of a model: one flat vector of parameters, one of gradients, one of other state.

Layers (or the tensors of a torch module) are views into these vectors, in forward order. So a bucket of a gradient is
a slice, averaging models is one array operation, and a strategy never asks what kind of model it trains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]
# Dense arrays, or scipy CSR matrices where the first layer takes them.
Inputs: TypeAlias = Any
SumOverRanks: TypeAlias = Callable[[FloatArray], FloatArray]
# Called with the index of a layer once all of its gradients are in place, from the last layer to the first.
LayerReady: TypeAlias = Callable[[int], None]


@dataclass(frozen=True)
class ParameterPart:
    """One named array inside the flat vectors: `parameters[start:stop].reshape(shape)`.

    `layer` counts the layers that have parameters, in forward order. `decays` says whether penalties and weight decay
    concern it (weights yes; biases and scales no).
    """

    name: str
    layer: int
    start: int
    stop: int
    shape: tuple[int, ...]
    decays: bool = True


@dataclass(frozen=True)
class Pass:
    """What layers may know of the batch that is trained on; predictions run without one.

    `row_numbers` are the global numbers of this rank's rows, `n_rows` counts the rows of the batch on all ranks that
    `sum_over_ranks` spans; without `sum_over_ranks` this rank is alone. `weights` are those of the rows, 1 on average.
    """

    step: int
    row_numbers: IntArray
    n_rows: int
    sum_over_ranks: SumOverRanks | None = None
    weights: FloatArray | None = None


class Model(ABC):
    """Parameters, gradients and buffers as flat vectors of one floating type, with the passes that fill them.

    `buffers` holds state that is not learned by gradients, such as the running moments of batch normalisation; it is
    part of a model that is averaged, committed or saved. The vectors are allocated once: assign with `[...] =`.
    """

    parameters: FloatArray
    gradients: FloatArray
    buffers: FloatArray
    parts: tuple[ParameterPart, ...]

    @property
    def n_layers(self) -> int:
        """How many layers have parameters."""
        return 1 + max((part.layer for part in self.parts), default=-1)

    def layer_range(self, layer: int) -> tuple[int, int]:
        """Where the parameters of one layer begin and end in the flat vectors."""
        parts = [part for part in self.parts if part.layer == layer]
        return parts[0].start, parts[-1].stop

    def view(self, vector: FloatArray, part: ParameterPart) -> FloatArray:
        """One part of a flat vector (parameters, gradients or any of their size) in its own shape."""
        return vector[part.start : part.stop].reshape(part.shape)

    @abstractmethod
    def outputs(self, inputs: Inputs) -> FloatArray:
        """Raw outputs (logits, or predicted values) of each row, without dropout and with running moments."""

    @abstractmethod
    def compute_gradients(
        self, inputs: Inputs, targets: FloatArray | IntArray, pass_: Pass, on_layer_ready: LayerReady | None = None
    ) -> float:
        """Fill `gradients` from this rank's rows; the loss of these rows.

        Loss and gradients are weighted sums over the rows divided by `pass_.n_rows`, so that those of all ranks add up
        to the mean of the batch. Without rows both are zero, and the same calls are made. Penalties are no part of
        either.
        """

    @abstractmethod
    def loss_of_outputs(self, outputs: FloatArray, targets: FloatArray | IntArray) -> float:
        """The loss summed over the rows."""

    @abstractmethod
    def name_of_bad_layer(self) -> str:
        """The first layer, in the order of the passes, with a value that is not finite; for errors."""

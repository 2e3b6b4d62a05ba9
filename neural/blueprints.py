"""How to build a model: a small record that travels to every rank, where the same seed builds the same model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dmlgbm.neural.layers import Activation, BatchNorm, Dense, Dropout, Embedding, Layer, Residual
from dmlgbm.neural.losses import make_loss
from dmlgbm.neural.model import Model
from dmlgbm.neural.network import Network


class ModelBlueprint(Protocol):
    """Anything that can be pickled and builds a model; every call builds an equal one."""

    def build(self) -> Model:
        """A model with its initial parameters."""


@dataclass(frozen=True)
class EmbeddingBlueprint:
    """Columns of category codes, how many categories each has, and how many numbers a category becomes."""

    columns: tuple[int, ...]
    n_categories: tuple[int, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True)
class NetworkBlueprint:
    """A multi-layer perceptron; without hidden layers a linear model, which starts at 0."""

    n_inputs: int
    n_outputs: int
    loss: str
    hidden_layer_sizes: tuple[int, ...] = ()
    activation: str = "relu"
    dropout: float = 0.0
    batch_norm: bool = False
    residual: bool = False
    embedding: EmbeddingBlueprint | None = None
    bias: bool = True
    dtype: str = "float32"
    seed: int = 0

    def build(self) -> Network:
        layers: list[Layer] = []
        if self.embedding is not None:
            layers.append(Embedding(self.embedding.columns, self.embedding.n_categories, self.embedding.widths))
        for width in self.hidden_layer_sizes:
            layers.extend(self._hidden(width))
        initial = "uniform" if self.hidden_layer_sizes else "zeros"
        layers.append(Dense(self.n_outputs, initial=initial, bias=self.bias))
        return Network(layers, make_loss(self.loss), self.n_inputs, dtype=self.dtype, seed=self.seed)

    def _hidden(self, width: int) -> list[Layer]:
        activation = Activation(self.activation)
        gain = activation.gain
        if self.residual:
            inner: list[Layer] = [Dense(width, gain), *self._norm(), activation, Dense(width), *self._norm()]
            layers: list[Layer] = [Residual(inner), Activation(self.activation)]
        else:
            layers = [Dense(width, gain), *self._norm(), activation]
        return [*layers, Dropout(self.dropout)] if self.dropout else layers

    def _norm(self) -> list[Layer]:
        return [BatchNorm()] if self.batch_norm else []

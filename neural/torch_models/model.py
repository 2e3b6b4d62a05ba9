"""A torch module as a model: its parameters and gradients are views into flat vectors that numpy and torch share.

Losses are those of `dmlgbm.neural.losses`; torch carries their gradient from the outputs to the parameters.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.losses import Loss, make_loss
from dmlgbm.neural.model import FloatArray, Inputs, LayerReady, Model, ParameterPart, Pass
from dmlgbm.neural.torch_models.batch_norm import NormsOverRanks
from dmlgbm.neural.torch_models.row_noise import RowNoise

_ROWS_OF_A_PREDICTION = 2048


@dataclass(frozen=True)
class TorchBlueprint:
    """A module with its initial parameters, the loss of its outputs, and how many there may be (None: any number)."""

    module: Any
    loss: str
    dtype: str = "float32"
    seed: int = 0
    n_outputs: tuple[int, ...] | None = None

    def build(self) -> TorchModel:
        return TorchModel(copy.deepcopy(self.module), make_loss(self.loss), self.dtype, self.seed, self.n_outputs)


class TorchModel(Model):
    """Takes a module over: its parameters move into the flat vectors, in the order in which they are registered.

    A layer is an innermost module with parameters of its own. Gradients of layers are reported from the last one
    registered to the first, whatever the order in which torch finishes them.
    """

    def __init__(
        self, module: Any, loss: Loss, dtype: str, seed: int, n_outputs: tuple[int, ...] | None = None
    ) -> None:
        self.module = module.to(getattr(torch, dtype))
        self._n_outputs = n_outputs
        self._norms = NormsOverRanks(self.module)
        self.loss = loss
        self._seed = seed
        self._outputs: Any = None
        named = [(layer, name, value) for layer, name, value in _parameters(self.module) if value.requires_grad]
        if not named:
            raise ValueError("module has no parameters to train")
        self.parts = tuple(_parts(named))
        size = self.parts[-1].stop
        self.parameters = np.empty(size, dtype)
        self.gradients = np.zeros(size, dtype)
        with torch.no_grad():
            for part, (_, _, value) in zip(self.parts, named, strict=True):
                views = [torch.from_numpy(self.view(vector, part)) for vector in (self.parameters, self.gradients)]
                views[0].copy_(value)
                value.data, value.grad = views
        self._bind_buffers(dtype)
        self._watch([value for _, _, value in named])

    def _bind_buffers(self, dtype: str) -> None:
        floating = [value for value in self.module.buffers() if value.is_floating_point()]
        self.buffers = np.empty(sum(value.numel() for value in floating), dtype)
        offset = 0
        for value in floating:
            view = torch.from_numpy(self.buffers[offset : offset + value.numel()]).view(value.shape)
            view.copy_(value)
            value.data = view
            offset += value.numel()

    def _watch(self, values: list[Any]) -> None:
        """Have torch tell which parameters' gradients are complete."""
        self._expected = [0] * self.n_layers
        for part in self.parts:
            self._expected[part.layer] += 1
        self._missing = list(self._expected)
        self._next_layer = -1
        self._on_layer_ready: LayerReady | None = None
        for part, value in zip(self.parts, values, strict=True):
            value.register_post_accumulate_grad_hook(lambda _, layer=part.layer: self._complete(layer))

    def _complete(self, layer: int) -> None:
        self._missing[layer] -= 1
        while self._next_layer >= 0 and self._missing[self._next_layer] <= 0:
            self._report_next()

    def _report_next(self) -> None:
        layer, self._next_layer = self._next_layer, self._next_layer - 1
        if self._on_layer_ready is not None:
            self._on_layer_ready(layer)

    def outputs(self, inputs: Inputs) -> FloatArray:
        self.module.eval()
        self._norms.begin(None)
        starts = range(0, max(1, inputs.shape[0]), _ROWS_OF_A_PREDICTION)
        with torch.no_grad():
            pieces = [self._scores(inputs[first : first + _ROWS_OF_A_PREDICTION]).numpy() for first in starts]
        return np.concatenate(pieces)

    def compute_gradients(
        self, inputs: Inputs, targets: Any, pass_: Pass, on_layer_ready: LayerReady | None = None
    ) -> float:
        self.gradients[...] = 0
        self._on_layer_ready = on_layer_ready
        self._missing = list(self._expected)
        self._next_layer = self.n_layers - 1
        loss = 0.0
        self._norms.begin(pass_)
        if len(targets) or self._norms.meet:
            self.module.train()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(hash_of(self._seed, "torch", pass_.step, *pass_.row_numbers[:1].tolist()) >> 1)
                with RowNoise(self._seed, pass_):
                    self._outputs = self._scores(inputs)
                slopes = self._outputs.detach().numpy().copy()
                if len(targets):
                    loss, slopes = self.loss.value_and_gradient(slopes, targets, pass_.weights)
                self._outputs.backward(torch.from_numpy(slopes * slopes.dtype.type(1.0 / pass_.n_rows)))
        while self._next_layer >= 0:  # layers that did not take part in this pass
            self._report_next()
        return loss / pass_.n_rows

    def _scores(self, inputs: Inputs) -> Any:
        """What the module says of rows, [row, output]."""
        outputs = self.module(_tensor(inputs))
        n_rows = inputs.shape[0]
        if not isinstance(outputs, torch.Tensor):
            raise TypeError(
                f"module must return one tensor with a row of outputs for each row, got a {type(outputs).__name__}: "
                f"wrap it in a module that returns the tensor to learn from"
            )
        if outputs.dim() == 0 or outputs.shape[0] != n_rows:
            raise ValueError(
                f"module must return outputs for each of {n_rows} rows, got a tensor of shape {tuple(outputs.shape)}"
            )
        scores = outputs if outputs.dim() == 2 else outputs.reshape(n_rows, math.prod(outputs.shape[1:]))
        if self._n_outputs is not None and scores.shape[1] not in self._n_outputs:
            wanted = " or ".join(map(str, self._n_outputs))
            raise ValueError(
                f"module must have {wanted} outputs for this y, got {scores.shape[1]}: change its last layer"
            )
        return scores

    def loss_of_outputs(self, outputs: FloatArray, targets: Any) -> float:
        return self.loss.value(outputs, targets)

    def name_of_bad_layer(self) -> str:
        for part in self.parts:
            if not np.isfinite(self.view(self.parameters, part)).all():
                return part.name
        return "the outputs of the module" if self._outputs is not None else f"the loss ({self.loss.name})"


def _parameters(module: Any) -> Iterator[tuple[int, str, Any]]:
    """(layer, name, parameter); a parameter that several modules share comes once."""
    seen: set[int] = set()
    layer = 0
    for name, inner in module.named_modules():
        fresh = [(label, value) for label, value in inner.named_parameters(recurse=False) if id(value) not in seen]
        for label, value in fresh:
            seen.add(id(value))
            yield layer, f"{name or type(module).__name__}.{label}", value
        layer += 1 if any(value.requires_grad for _, value in fresh) else 0


def _parts(named: list[tuple[int, str, Any]]) -> Iterator[ParameterPart]:
    offset = 0
    for layer, name, value in named:
        yield ParameterPart(name, layer, offset, offset + value.numel(), tuple(value.shape), decays=value.dim() > 1)
        offset += value.numel()


def _tensor(inputs: Inputs) -> Any:
    if not isinstance(inputs, np.ndarray):
        raise TypeError("a torch module takes dense rows: X is a sparse matrix")
    # Rows that are mapped from a file are read-only, which torch does not know.
    return torch.from_numpy(inputs if inputs.flags.writeable else inputs.copy())

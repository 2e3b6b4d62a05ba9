"""A torch module as a model: its parameters and gradients are views into flat vectors that numpy and torch share.

Losses are those of `neural.losses`; torch carries their gradient from the outputs to the parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from neural.losses import Loss, make_loss
from neural.model import FloatArray, Inputs, LayerReady, Model, ParameterPart, Pass
from neural.random_numbers import hash_of

_ROWS_OF_A_PREDICTION = 2048


@dataclass(frozen=True)
class TorchPlan:
    """A module with its initial parameters, and the loss of its outputs."""

    module: Any
    loss: str
    dtype: str = "float32"
    seed: int = 0

    def build(self) -> TorchModel:
        return TorchModel(copy.deepcopy(self.module), make_loss(self.loss), self.dtype, self.seed)


class TorchModel(Model):
    """Takes a module over: its parameters move into the flat vectors, in the order in which they are registered.

    A layer is an innermost module with parameters of its own. Gradients of layers are reported from the last one
    registered to the first, whatever the order in which torch finishes them.
    """

    def __init__(self, module: Any, loss: Loss, dtype: str, seed: int) -> None:
        self.module = module.to(getattr(torch, dtype))
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
        starts = range(0, max(1, inputs.shape[0]), _ROWS_OF_A_PREDICTION)
        with torch.no_grad():
            pieces = [
                _as_matrix(self.module(_tensor(inputs[first : first + _ROWS_OF_A_PREDICTION]))).numpy()
                for first in starts
            ]
        return np.concatenate(pieces)

    def compute_gradients(
        self, inputs: Inputs, targets: Any, pass_: Pass, on_layer_ready: LayerReady | None = None
    ) -> float:
        self.gradients[...] = 0
        self._on_layer_ready = on_layer_ready
        self._missing = list(self._expected)
        self._next_layer = self.n_layers - 1
        loss = 0.0
        if len(targets):
            self.module.train()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(hash_of(self._seed, "torch", pass_.step, int(pass_.row_numbers[0])) >> 1)
                self._outputs = _as_matrix(self.module(_tensor(inputs)))
                scores = self._outputs.detach().numpy().copy()
                loss, slopes = self.loss.value_and_gradient(scores, targets, pass_.weights)
                self._outputs.backward(torch.from_numpy(slopes * slopes.dtype.type(1.0 / pass_.n_rows)))
        while self._next_layer >= 0:  # layers that did not take part in this pass
            self._report_next()
        return loss / pass_.n_rows

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


def _as_matrix(outputs: Any) -> Any:
    return outputs if outputs.dim() == 2 else outputs.reshape(len(outputs), -1)

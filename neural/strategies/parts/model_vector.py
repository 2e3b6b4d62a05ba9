"""A model as one vector: parameters, then buffers."""

from __future__ import annotations

import numpy as np

from dmlgbm.neural.model import FloatArray, Model


def vector_of(model: Model) -> FloatArray:
    """A copy of everything a model has learnt."""
    return np.concatenate([model.parameters, model.buffers])


def set_vector(model: Model, values: FloatArray) -> None:
    """Make a model what `vector_of` returned."""
    border = len(model.parameters)
    model.parameters[...] = values[:border]
    model.buffers[...] = values[border:]

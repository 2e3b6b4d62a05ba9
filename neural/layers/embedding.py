"""Embeddings: columns of category codes become learned vectors; the other columns pass through."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from dmlgbm.neural.layers.base import ArrayBlueprint, Layer, LayerBlueprint
from dmlgbm.neural.model import FloatArray, Inputs, Pass
from dmlgbm.neural.random_numbers import normal


class Embedding(Layer):
    """`columns[k]` holds codes below `n_categories[k]`, each of which gets `widths[k]` numbers."""

    def __init__(self, columns: Sequence[int], n_categories: Sequence[int], widths: Sequence[int]) -> None:
        self.columns = list(columns)
        self.n_categories = list(n_categories)
        self.widths = list(widths)

    def blueprint(self, n_inputs: int) -> LayerBlueprint:
        self._others = np.setdiff1d(np.arange(n_inputs), self.columns)
        tables = tuple(
            ArrayBlueprint(f"table_{column}", (n_categories, width), partial(_small, width), decays=True)
            for column, n_categories, width in zip(self.columns, self.n_categories, self.widths, strict=True)
        )
        return LayerBlueprint(len(self._others) + sum(self.widths), tables)

    def forward(self, inputs: Inputs, pass_: Pass | None) -> FloatArray:
        codes = [inputs[:, column].astype(np.int64) for column in self.columns]
        vectors = [table[code] for table, code in zip(self.parameters, codes, strict=True)]
        if pass_ is not None:
            self._codes = codes
        return np.concatenate([inputs[:, self._others], *vectors], axis=1)

    def backward(self, gradient: FloatArray) -> None:
        start = len(self._others)
        for code, width, table in zip(self._codes, self.widths, self.gradients, strict=True):
            table[...] = 0
            # Rows of one category are brought together and added by one reduction, many times faster than `add.at`.
            if len(code):
                order = np.argsort(code, kind="stable")
                firsts = np.flatnonzero(np.diff(code[order], prepend=-1))
                table[code[order][firsts]] = np.add.reduceat(gradient[order, start : start + width], firsts, axis=0)
            start += width


def _small(width: int, key: int, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return normal(key, int(np.prod(shape))).reshape(shape) / np.sqrt(width)

"""Predictions of Dask collections: lazy, block by block, with the chunks, index and divisions of the input.

The model is one node of the task graph that every block refers to. Dask moves such a node to each worker once, and
what the model builds for itself there (its compact trees) serves all blocks of the worker.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.dask_backend.collections import is_array, is_frame
from dmlgbm.dask_backend.worker_threads import threads_of_task

BlockFunction = Callable[[Any, Any, int], npt.NDArray[Any]]
"""From (model, rows of X, number of threads) to one result for each row."""


@dataclass(frozen=True)
class BlockPrediction:
    """What is done to every block, and what comes out: `example` is the result for one row.

    `columns` name the second axis where the input has names.
    """

    function: BlockFunction
    example: npt.NDArray[Any]
    columns: Sequence[Any] = ()
    max_threads: int | None = None


def predict_blocks(X: Any, model: Any, prediction: BlockPrediction) -> Any:
    """A collection like X that holds the prediction for its rows; nothing is computed."""
    if is_frame(X):
        return _of_frame(X, model, prediction)
    if is_array(X):
        return _of_array(X, model, prediction)
    raise TypeError(
        f"X is a {type(X).__module__}.{type(X).__qualname__}: predictions of Dask collections are made for "
        "dask.dataframe.DataFrame and dask.array.Array."
    )


def _of_frame(X: Any, model: Any, prediction: BlockPrediction) -> Any:
    meta = _framed(prediction.example, prediction, X._meta.index[:0], None)
    return X.map_partitions(
        _frame_block, _shipped(model), prediction=_small(prediction), n_blocks=X.npartitions, like=meta, meta=meta
    )


def _frame_block(block: Any, model: Any, prediction: BlockPrediction, n_blocks: int, like: Any) -> Any:
    return _framed(_block(block, model, prediction, n_blocks), prediction, block.index, like)


def _framed(values: npt.NDArray[Any], prediction: BlockPrediction, index: Any, like: Any) -> Any:
    """Results beside the index of their rows, with the dtypes of `like` where that is given."""
    import pandas as pd

    kept = values[: len(index)]
    if values.ndim == 1:
        # What pandas makes of labels depends on the labels: one row decides for all blocks, empty ones too.
        dtype = pd.Series(prediction.example).dtype if like is None else like.dtype
        return pd.Series(kept, index=index, dtype=dtype)
    return pd.DataFrame(kept, index=index, columns=pd.Index(list(prediction.columns)))


def _of_array(X: Any, model: Any, prediction: BlockPrediction) -> Any:
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: X has shape {X.shape}.")
    rows = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    example = prediction.example
    chunks = (rows.chunks[0],) if example.ndim == 1 else (rows.chunks[0], (example.shape[1],))
    return rows.map_blocks(
        _block,
        model=_shipped(model),
        prediction=_small(prediction),
        n_blocks=rows.numblocks[0],
        drop_axis=1 if example.ndim == 1 else None,
        chunks=chunks,
        dtype=example.dtype,
        meta=example[:0],
    )


def _block(block: Any, model: Any, prediction: BlockPrediction, n_blocks: int) -> npt.NDArray[Any]:
    if not block.shape[0]:  # sparse matrices have no length
        return prediction.example[:0]
    n_threads = threads_of_task(n_blocks)
    if prediction.max_threads is not None:
        n_threads = min(n_threads, prediction.max_threads)
    return np.asarray(prediction.function(model, block, n_threads)).astype(prediction.example.dtype, copy=False)


def _small(prediction: BlockPrediction) -> BlockPrediction:
    """Without the row, which is as wide as there are trees: this travels with every task."""
    return replace(prediction, example=prediction.example[:0])


def _shipped(model: Any) -> Any:
    """The model as a node of the graph; equal models share a node, also between collections on one cluster."""
    from dask.delayed import delayed

    digest = hashlib.sha256(pickle.dumps(model)).hexdigest()[:32]
    return delayed(model, name=f"dmlgbm-model-{digest}", traverse=False)

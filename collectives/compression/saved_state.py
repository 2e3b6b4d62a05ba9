"""Error-feedback state as plain arrays and back; nothing in it needs pickle, and nothing read is trusted.

`keys`, `steps` and `dtypes` have one item for each key; `shape_0`, `residual_0`, `memory_0` belong to the first key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.compression.protocol import Codec, FloatArray, Layout

_FORMAT = "dmlgbm-compression-1"


@dataclass(frozen=True)
class Entry:
    """The state of one key; `residual` is flat, and None for a codec that sends everything."""

    layout: Layout
    step: int
    residual: FloatArray | None
    memory: FloatArray | None

    def residual_values(self) -> FloatArray:
        return self.layout.zeros() if self.residual is None else self.residual


def entries_to_arrays(settings: str, entries: Mapping[str, Entry]) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {
        "format": np.array(_FORMAT),
        "codec": np.array(settings),
        "keys": np.array(list(entries), dtype=np.str_),
        "steps": np.array([entry.step for entry in entries.values()], dtype=np.int64),
        "dtypes": np.array([entry.layout.dtype.name for entry in entries.values()], dtype=np.str_),
    }
    for number, entry in enumerate(entries.values()):
        arrays[f"shape_{number}"] = np.array(entry.layout.shape, dtype=np.int64)
        if entry.residual is not None:
            arrays[f"residual_{number}"] = entry.residual.copy()
        if entry.memory is not None:
            arrays[f"memory_{number}"] = entry.memory.copy()
    return arrays


def entries_from_arrays(codec: Codec, arrays: Mapping[str, Any]) -> dict[str, Entry]:
    written_as, settings = str(_array(arrays, "format", 0)), str(_array(arrays, "codec", 0))
    if written_as != _FORMAT:
        raise ValueError(f"saved state: format is {written_as!r}, this version reads {_FORMAT!r}")
    if settings != repr(codec):
        raise ValueError(f"saved state: written for {settings}, but this compressor uses {codec!r}")
    keys = [str(key) for key in _array(arrays, "keys", 1)]
    steps, dtypes = _array(arrays, "steps", 1), _array(arrays, "dtypes", 1)
    if not len(set(keys)) == len(keys) == len(steps) == len(dtypes):
        raise ValueError("saved state: keys must be distinct, with one step and one dtype for each")
    return {key: _entry(codec, arrays, number, steps[number], str(dtypes[number])) for number, key in enumerate(keys)}


def _entry(codec: Codec, arrays: Mapping[str, Any], number: int, step: Any, dtype_name: str) -> Entry:
    shape = _array(arrays, f"shape_{number}", 1)
    if shape.size and (shape.dtype.kind != "i" or shape.min() < 0):
        raise ValueError(f"saved state: shape_{number} must hold integers from 0 on, not {shape.tolist()}")
    if not isinstance(step, np.integer) or step < 1:
        raise ValueError(f"saved state: steps[{number}] must be a positive integer, not {step}")
    if dtype_name not in ("float32", "float64"):
        raise ValueError(f"saved state: dtypes[{number}] must be float32 or float64, not {dtype_name!r}")
    layout = Layout(tuple(shape.tolist()), np.dtype(dtype_name))
    residual = None if codec.lossless else _finite(arrays, f"residual_{number}", (layout.count,), layout)
    memory_shape = codec.memory_shape(layout) if layout.count else None
    memory = None if memory_shape is None else _finite(arrays, f"memory_{number}", memory_shape, layout)
    return Entry(layout, int(step), residual, memory)


def _finite(arrays: Mapping[str, Any], name: str, shape: tuple[int, ...], layout: Layout) -> FloatArray:
    values = _array(arrays, name, len(shape))
    if values.shape != shape or values.dtype != layout.dtype:
        raise ValueError(
            f"saved state: {name} must be {layout.dtype} of shape {shape}, not {values.dtype} of {values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"saved state: {name} holds NaN or infinity")
    return values.copy()


def _array(arrays: Mapping[str, Any], name: str, n_axes: int) -> npt.NDArray[Any]:
    if name not in arrays:
        raise ValueError(f"saved state: {name} is missing")
    values = np.asarray(arrays[name])
    if values.ndim != n_axes:
        raise ValueError(f"saved state: {name} must have {n_axes} axes, not {values.ndim}")
    return values

"""A codec with what it has not sent yet: the error-feedback state of one rank.

For every key the compressor keeps what the last calls left unsent (the residual), the number of calls, and the
codec's own memory. A call changes this only after it has succeeded. A compressor belongs to one rank and serves one
call at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.compression.protocol import Codec, Exchanged, FloatArray, Layout, Round
from dmlgbm.collectives.compression.saved_state import Entry, entries_from_arrays, entries_to_arrays

NanPolicy = Literal["error", "zero"]


@dataclass(frozen=True)
class Offer:
    """What a rank brings to a call: its values, or zeros and the reason why it refuses."""

    round_: Round
    values: FloatArray
    refusal: Exception | None


class Compressor:
    """Runs a codec over arrays, adding to each what earlier calls with the same key could not send.

    `nan_policy` says what happens to NaN and infinities in an array: "error" refuses the array, "zero" takes them as 0.
    """

    def __init__(self, codec: Codec, *, nan_policy: NanPolicy = "error") -> None:
        if not isinstance(codec, Codec):
            raise TypeError(f"codec must be an instance of a codec such as Int8(), not {codec!r}")
        if nan_policy not in get_args(NanPolicy):
            raise ValueError(f"nan_policy must be one of {get_args(NanPolicy)}, not {nan_policy!r}")
        self.codec = codec
        self.nan_policy = nan_policy
        self._entries: dict[str, Entry] = {}

    def __repr__(self) -> str:
        return f"Compressor({self.codec!r}, nan_policy={self.nan_policy!r})"

    def residual(self, key: str) -> FloatArray:
        """What calls with this key have not sent yet, as a new array."""
        entry = self._entry(key)
        return entry.residual_values().reshape(entry.layout.shape).copy()

    def step(self, key: str) -> int:
        """How many calls with this key have succeeded."""
        return self._entry(key).step

    def keys(self) -> list[str]:
        return list(self._entries)

    def reset(self, key: str | None = None) -> None:
        """Forget what one key, or every key, has not sent yet. All ranks must reset alike."""
        if key is None:
            self._entries.clear()
        else:
            self._entry(key)
            del self._entries[key]

    def save(self) -> dict[str, npt.NDArray[Any]]:
        """The state as plain arrays, for `numpy.savez` or any other store; later calls do not change them."""
        return entries_to_arrays(repr(self.codec), self._entries)

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Replace the state by one that `save` wrote; where it does not fit, raise and change nothing."""
        self._entries = entries_from_arrays(self.codec, arrays)

    def offer(self, array: npt.NDArray[Any], key: str, world_size: int) -> Offer:
        """What this rank brings to a call. Never raises for bad input: other ranks must not wait for the answer."""
        entry = self._entries.get(key) if isinstance(key, str) else None
        refusal: Exception | None = None
        try:
            layout = _checked_layout(array, key, entry)
            values = self._compensated(array, key, entry)
        except (TypeError, ValueError, OverflowError) as error:
            refusal = error
            layout = _likely_layout(array) if entry is None else entry.layout
            values = layout.zeros()
        step, memory = (0, None) if entry is None else (entry.step, entry.memory)
        return Offer(Round(layout, str(key), step, world_size, memory), values, refusal)

    def commit(self, offer: Offer, exchanged: Exchanged) -> None:
        """Remember what a call that succeeded has left unsent."""
        round_ = offer.round_
        self._entries[round_.key] = Entry(
            layout=round_.layout,
            step=round_.step + 1,
            residual=None if self.codec.lossless else offer.values - exchanged.sent,
            memory=None if exchanged.memory is None else exchanged.memory.copy(),
        )

    def _entry(self, key: str) -> Entry:
        if key not in self._entries:
            raise KeyError(f"no state for key {key!r}; known keys: {list(self._entries)}")
        return self._entries[key]

    def _compensated(self, array: npt.NDArray[Any], key: str, entry: Entry | None) -> FloatArray:
        values = array.reshape(-1)
        if self.nan_policy == "zero" and not np.isfinite(values).all():
            values = np.where(np.isfinite(values), values, values.dtype.type(0))
        if entry is not None and entry.residual is not None:
            with np.errstate(over="ignore"):
                values = values + entry.residual
        finite = np.isfinite(values)
        if finite.all():
            return values
        first = int(np.argmin(finite))
        position = [int(index) for index in np.unravel_index(first, array.shape)]
        found = array.reshape(-1)[first]
        if np.isfinite(found):
            raise OverflowError(f"array{position} plus what is still unsent of key {key!r} overflows {array.dtype}")
        raise ValueError(f"array{position} of key {key!r} is {found}; repair the array or set nan_policy='zero'")


def _checked_layout(array: npt.NDArray[Any], key: str, entry: Entry | None) -> Layout:
    if not isinstance(key, str):
        raise TypeError(f"state_key must be a string, not {key!r}")
    if not key or "\0" in key:
        raise ValueError(f"state_key must be a non-empty string without NUL, not {key!r}")
    if not isinstance(array, np.ndarray):
        raise TypeError(f"array must be a numpy array, not {type(array).__name__}")
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(f"array must be float32 or float64 in native byte order, not {array.dtype.str}")
    layout = Layout(array.shape, array.dtype)
    if entry is not None and layout != entry.layout:
        raise ValueError(
            f"array has shape {layout.shape} and dtype {layout.dtype}, but the state of key {key!r} has "
            f"{entry.layout.shape} and {entry.layout.dtype}; use another key or reset({key!r}) on all ranks"
        )
    return layout


def _likely_layout(array: object) -> Layout:
    """What the other ranks probably use, so that a refusal has the size they expect."""
    dtype = np.dtype(np.float64 if getattr(array, "dtype", None) == np.float64 else np.float32)
    return Layout(array.shape if isinstance(array, np.ndarray) else (), dtype)

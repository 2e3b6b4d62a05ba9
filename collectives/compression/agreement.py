"""How ranks notice, inside the data message itself, that one of them refuses or works on something else.

All ranks of a call hash what they must agree on to one number. A gathered payload starts with that number. A summed
payload ends with a ballot: two positions for each rank, where it alone writes the number's two digits, so that the sum
shows every rank's number at no extra message. Zero means that the rank refuses: it takes part, so that nobody waits
for it, and then raises its own error.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.compression.protocol import ByteArray, Codec, FloatArray, PayloadError, PeerRefusedError, Round
from dmlgbm.gbdt.system.counter_random import hash_of

_HEADER = struct.Struct("<Q")
HEADER_SIZE = _HEADER.size
_REFUSED = 0
# The largest range of integers in which float16, the narrowest type that is summed, holds every number.
_DIGIT = 2048


def agreement_of(codec: Codec, round_: Round) -> int:
    """The number on which all ranks of a call agree; never zero."""
    memory = 0 if round_.memory is None else zlib.crc32(np.ascontiguousarray(round_.memory).data)
    layout = round_.layout
    parts = (repr(codec), round_.key, round_.step, round_.world_size, str(layout.shape), str(layout.dtype), memory)
    return hash_of(*parts) or 1


def header(agreement: int, refuses: bool) -> bytes:
    return _HEADER.pack(_REFUSED if refuses else agreement)


def split_frame(frame: npt.NDArray[Any]) -> tuple[int, ByteArray]:
    """The number a gathered frame starts with, and its body."""
    if frame.dtype != np.uint8 or frame.ndim != 1 or frame.size < HEADER_SIZE:
        raise PayloadError(f"a frame is at least {HEADER_SIZE} bytes in one row, not {frame.dtype} of {frame.shape}")
    return _HEADER.unpack(frame[:HEADER_SIZE].tobytes())[0], np.ascontiguousarray(frame[HEADER_SIZE:])


def ballot(agreement: int, refuses: bool, rank: int, world_size: int, dtype: np.dtype[Any]) -> FloatArray:
    positions = np.zeros((world_size, 2), dtype)
    if not refuses:
        positions[rank] = _digits(agreement)
    return positions.reshape(-1)


def check_ballot(positions: FloatArray, agreement: int, call: str) -> None:
    """Raise, on every rank alike, unless all ranks agree."""
    rows = positions.reshape(-1, 2)
    refused = [rank for rank, row in enumerate(rows) if not row.any()]
    strangers = [rank for rank, row in enumerate(rows) if row.any() and tuple(row.tolist()) != _digits(agreement)]
    _raise_unless_empty(refused, strangers, call)


def check_headers(numbers: Sequence[int], agreement: int, call: str) -> None:
    """Raise, on every rank alike, unless all ranks agree."""
    refused = [rank for rank, number in enumerate(numbers) if number == _REFUSED]
    strangers = [rank for rank, number in enumerate(numbers) if number not in (_REFUSED, agreement)]
    _raise_unless_empty(refused, strangers, call)


def _digits(agreement: int) -> tuple[float, float]:
    return float(agreement % _DIGIT + 1), float(agreement // _DIGIT % _DIGIT + 1)


def _raise_unless_empty(refused: list[int], strangers: list[int], call: str) -> None:
    if strangers:
        raise PayloadError(
            f"{call}: ranks {strangers} work on something else; call on all ranks with the same key, "
            "shape, dtype and codec settings, from states saved at the same step"
        )
    if refused:
        raise PeerRefusedError(f"{call}: ranks {refused} refused their input and say why; no rank changed its state")

"""Values of a push through a codec: coded by the worker, decoded by every server that applies the push.

A codec works on pieces of a dense array, such as layers of a model, one by one. Numbers behind the last piece travel
as they are. What a codec leaves out is known to the worker, which decodes what it sends: it can send the rest later.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dmlgbm.collectives.compression import CODECS, GatheredCodec, Layout, PayloadError, Round
from dmlgbm.collectives.parameter_server.codec import Array
from dmlgbm.collectives.parameter_server.messages import CodedValues

_WORD_BYTES = 8


@dataclass(frozen=True)
class PushCoder:
    """Codes dense arrays piece by piece; `borders` are where pieces begin, and where the last one ends."""

    codec: GatheredCodec
    borders: Sequence[int]

    def coded(self, values: Array, start: int) -> tuple[CodedValues, Array]:
        """A stretch of the array that begins at `start`, and what a server makes of it."""
        stop = start + len(values)
        inside = [border - start for border in self.borders if start < border < stop]
        end = min(max(0, self.borders[-1] - start), len(values))
        bounds = sorted({0, end, *inside})
        lengths = tuple(last - first for first, last in pairwise(bounds))
        bodies = [
            self.codec.encode(values[first:last], _round(last - first, values.dtype))
            for first, last in pairwise(bounds)
        ]
        joined = b"".join(bodies)
        padded = joined + bytes(-len(joined) % _WORD_BYTES)
        message = CodedValues(
            self.codec.name,
            json.dumps(asdict(self.codec)),  # type: ignore[call-overload]
            lengths,
            np.frombuffer(padded, "<i8"),
            values[end:].copy(),
        )
        return message, decoded(message, values.dtype, len(values))


def decoded(message: CodedValues, dtype: np.dtype[Any], size: int) -> Array:
    """The `size` values in a message; PayloadError where no worker can have sent it."""
    codec = _codec(message.codec, message.settings)
    if min(message.lengths, default=1) < 1 or sum(message.lengths) + message.rest.size != size:
        raise PayloadError(f"pieces of {message.lengths} and {message.rest.size} numbers do not make {size}")
    if message.bodies.dtype != np.int64 or message.rest.dtype != dtype:
        raise PayloadError(f"coded values of {dtype} come with {message.bodies.dtype} and {message.rest.dtype}")
    rounds = [_round(length, dtype) for length in message.lengths]
    sizes = [codec.body_size(round_.layout) for round_ in rounds]
    if message.bodies.nbytes != sum(sizes) + -sum(sizes) % _WORD_BYTES:
        raise PayloadError(f"{message.bodies.nbytes} bytes came where {sum(sizes)} are due")
    body = np.frombuffer(np.ascontiguousarray(message.bodies), np.uint8)
    pieces, start = [], 0
    for round_, length in zip(rounds, sizes, strict=True):
        pieces.append(codec.decode(body[start : start + length], round_))
        start += length
    return np.concatenate([*pieces, message.rest.reshape(-1)])


def _round(length: int, dtype: np.dtype[Any]) -> Round:
    """Codecs of this kind depend on nothing but the layout."""
    return Round(Layout((length,), np.dtype(dtype)), "push", 0, 1)


@lru_cache(maxsize=64)
def _codec(name: str, settings: str) -> GatheredCodec:
    kind = CODECS.get(name)
    if kind is None or not issubclass(kind, GatheredCodec):
        raise PayloadError(f"no codec for single payloads is called {name!r}")
    try:
        return kind(**json.loads(settings))
    except (TypeError, ValueError) as error:
        raise PayloadError(f"codec {name!r} cannot have the settings {settings}: {error}") from error

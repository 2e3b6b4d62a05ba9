"""Sums over ranks, through a codec where one is asked for: the one door by which strategies send gradients.

Keys name what is summed (a bucket, a layer), because error feedback remembers for each key what was not sent yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dmlgbm.neural.history import RankHistory
from dmlgbm.neural.model import FloatArray

# Loaded when ranks exchange something: a fit in one process must not wait for the communication layer.
if TYPE_CHECKING:
    from dmlgbm.collectives import Communicator, Handle
    from dmlgbm.collectives.compression import Compressor, GatheredCodec, RankGroup


class GradientChannel:
    """Plain sums, or those of a codec with error feedback. Time spent here counts as waiting."""

    def __init__(self, communicator: Communicator, history: RankHistory, compressor: Compressor | None = None) -> None:
        self.communicator = communicator
        self.compressor = compressor
        self._history = history

    def all_reduce(self, key: str, array: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """The sum over ranks; the same bits on each. `out` may be `array`."""
        with self._history.waiting():
            return self._all_reduce(key, array, out)

    def start_all_reduce(self, key: str, array: FloatArray, out: FloatArray) -> Handle[FloatArray]:
        """Start a sum that goes on while the caller computes; neither array may be touched before `wait`."""
        return self.communicator.start(self._all_reduce, key, array, out)

    def wait(self, handle: Handle[FloatArray]) -> FloatArray:
        """What a started sum has come to."""
        with self._history.waiting():
            return handle.wait()

    def _all_reduce(self, key: str, array: FloatArray, out: FloatArray | None) -> FloatArray:
        if self.compressor is None:
            return self.communicator.all_reduce(array, out=out)
        from dmlgbm.collectives.compression import compressed_all_reduce

        total = compressed_all_reduce(cast("RankGroup", self.communicator), array, self.compressor, key)
        if out is None:
            return total
        out[...] = total
        return out


def make_compressor(name: str | None, options: Mapping[str, Any]) -> Compressor | None:
    """The compressor that `compression=` and `compression_options=` ask for."""
    if name is None:
        if options:
            raise ValueError("compression_options has no meaning without compression")
        return None
    from dmlgbm.collectives.compression import CODECS, Compressor

    if name not in CODECS:
        raise ValueError(f"compression must be one of {', '.join(CODECS)}, got {name!r}")
    try:
        return Compressor(CODECS[name](**options))
    except TypeError as error:
        raise ValueError(f"compression_options do not fit compression={name!r}: {error}") from None


def single_payload_codec(compressor: Compressor, strategy: str) -> GatheredCodec:
    """The codec, for a strategy whose payloads go from one rank to another and are never summed on the way."""
    from dmlgbm.collectives.compression import CODECS, GatheredCodec

    if isinstance(compressor.codec, GatheredCodec):
        return compressor.codec
    usable = [name for name, kind in CODECS.items() if issubclass(kind, GatheredCodec)]
    raise ValueError(
        f"strategy {strategy!r} cannot use compression={compressor.codec.name!r}, which sums payloads over all ranks: "
        f"use {', '.join(usable[:-1])} or {usable[-1]}"
    )

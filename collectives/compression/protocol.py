"""What a codec is: a pure function of arrays that says how its payloads are brought together across ranks.

A `GatheredCodec` turns values into bytes; every rank gets the bytes of all ranks, decodes and adds them in rank order.
A `SummedCodec` turns values into an array that may be summed on the way, in one or more passes. Neither keeps state:
what a call depends on besides the values is in its `Round`, and what it leaves for the next call it returns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
ByteArray: TypeAlias = npt.NDArray[np.uint8]


class RankGroup(Protocol):
    """The part of a communicator that compression needs."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def all_reduce(self, array: npt.NDArray[Any], op: str = "sum") -> npt.NDArray[Any]: ...

    def all_gather(self, array: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]: ...


class PayloadError(ValueError):
    """A rank sent bytes that cannot be a payload of this codec."""


class PeerRefusedError(RuntimeError):
    """Another rank could not take part in this call; its own error says why."""


@dataclass(frozen=True)
class Layout:
    """Shape and dtype of the arrays of one key; float32 or float64."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def zeros(self) -> FloatArray:
        return np.zeros(self.count, self.dtype)


@dataclass(frozen=True)
class Round:
    """One call for one key: everything a codec may depend on besides the values; equal on all ranks."""

    layout: Layout
    key: str
    step: int
    world_size: int
    memory: FloatArray | None = None


@dataclass(frozen=True)
class Exchanged:
    """What a summed codec made of one call: the sum over ranks, this rank's share of it, memory for the next call."""

    total: FloatArray
    sent: FloatArray
    memory: FloatArray | None = None


class Codec(ABC):
    """What both kinds share. Subclasses are frozen dataclasses, so that `repr` tells their settings.

    Values are flat arrays of `round.layout.dtype`, finite and never empty; a codec does not write to them.
    """

    name: ClassVar[str]
    # A lossless codec sends everything, so no residual is kept for it.
    lossless: ClassVar[bool] = False

    def memory_shape(self, layout: Layout) -> tuple[int, ...] | None:
        """The shape of the memory this codec keeps between calls, None where it keeps none."""
        return None


class GatheredCodec(Codec):
    """Payloads that cannot be added as they are."""

    @abstractmethod
    def body_size(self, layout: Layout) -> int:
        """How many bytes `encode` returns: known to the receiver before anything arrives."""

    @abstractmethod
    def encode(self, values: FloatArray, round_: Round) -> bytes: ...

    @abstractmethod
    def decode(self, body: ByteArray, round_: Round) -> FloatArray:
        """The values in a body of the right size; anything `encode` cannot have written raises PayloadError."""


class SummedCodec(Codec):
    """Payloads whose sum is the payload of the sum."""

    @abstractmethod
    def exchange(self, values: FloatArray, round_: Round) -> Generator[FloatArray, FloatArray, Exchanged]:
        """Yield one flat payload per pass and get back its sum over the ranks, the same bits on each of them."""

"""No compression: values travel as they are and are summed on the way."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from dmlgbm.collectives.compression.protocol import Exchanged, FloatArray, Round, SummedCodec


@dataclass(frozen=True)
class NoCompression(SummedCodec):
    """The reference the others are compared with."""

    name: ClassVar[str] = "none"
    lossless: ClassVar[bool] = True

    def exchange(self, values: FloatArray, round_: Round) -> Generator[FloatArray, FloatArray, Exchanged]:
        total = yield values
        return Exchanged(total, sent=values)

"""Compressed sums over ranks: codecs as pure functions, error feedback as state, one driver for both."""

from __future__ import annotations

from dmlgbm.collectives.compression.all_reduce import compressed_all_reduce
from dmlgbm.collectives.compression.compressor import Compressor, NanPolicy
from dmlgbm.collectives.compression.half_precision import BFloat16, Float16, Float16Sum
from dmlgbm.collectives.compression.lossless import NoCompression
from dmlgbm.collectives.compression.low_rank import PowerSGD
from dmlgbm.collectives.compression.protocol import (
    Codec,
    Exchanged,
    GatheredCodec,
    Layout,
    PayloadError,
    PeerRefusedError,
    RankGroup,
    Round,
    SummedCodec,
)
from dmlgbm.collectives.compression.quantised import Int8, OneBit
from dmlgbm.collectives.compression.sparse import RandomK, TopK

CODECS: dict[str, type[Codec]] = {
    codec.name: codec for codec in (NoCompression, Float16, Float16Sum, BFloat16, Int8, OneBit, TopK, RandomK, PowerSGD)
}

__all__ = [
    "CODECS",
    "BFloat16",
    "Codec",
    "Compressor",
    "Exchanged",
    "Float16",
    "Float16Sum",
    "GatheredCodec",
    "Int8",
    "Layout",
    "NanPolicy",
    "NoCompression",
    "OneBit",
    "PayloadError",
    "PeerRefusedError",
    "PowerSGD",
    "RandomK",
    "RankGroup",
    "Round",
    "SummedCodec",
    "TopK",
    "compressed_all_reduce",
]

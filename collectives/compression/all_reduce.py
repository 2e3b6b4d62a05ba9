"""The sum of an array over all ranks, sent through a codec: the one driver that knows both codecs and ranks.

Ranks answer every message even when they refuse their own input, and everyone judges the same bytes: a call
succeeds on all ranks, with the same bits, or raises on all of them and leaves their state as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.compression.agreement import (
    agreement_of,
    ballot,
    check_ballot,
    check_headers,
    header,
    split_frame,
)
from dmlgbm.collectives.compression.compressor import Compressor, Offer
from dmlgbm.collectives.compression.lossless import NoCompression
from dmlgbm.collectives.compression.protocol import (
    Exchanged,
    FloatArray,
    GatheredCodec,
    PayloadError,
    RankGroup,
    Round,
    SummedCodec,
)


def compressed_all_reduce(
    communicator: RankGroup, array: npt.NDArray[Any], compressor: Compressor, state_key: str
) -> FloatArray:
    """The sum over ranks of what each sends of its array; the rest is sent by later calls with the same key.

    Every rank calls with its own compressor, all of the same codec, and gets a new array of the same bits.
    """
    offer = compressor.offer(array, state_key, communicator.world_size)
    if isinstance(compressor.codec, GatheredCodec):
        exchanged = _exchange_gathered(communicator, compressor.codec, offer)
    elif isinstance(compressor.codec, SummedCodec):
        exchanged = _exchange_summed(communicator, compressor.codec, offer)
    else:
        raise TypeError(f"{compressor.codec!r} is neither a GatheredCodec nor a SummedCodec")
    if not np.isfinite(exchanged.total).all():
        raise OverflowError(f"{_call(offer.round_)}: the sum over ranks overflows; scale the arrays down")
    compressor.commit(offer, exchanged)
    return np.require(exchanged.total, requirements="W").reshape(offer.round_.layout.shape)


def _exchange_gathered(group: RankGroup, codec: GatheredCodec, offer: Offer) -> Exchanged:
    round_ = offer.round_
    agreement = agreement_of(codec, round_)
    body = codec.encode(offer.values, round_) if offer.values.size else b""
    frame = np.frombuffer(header(agreement, offer.refusal is not None) + body, np.uint8)
    with _own_refusal_first(offer.refusal):
        frames = group.all_gather(frame)
    if len(frames) != group.world_size:
        raise PayloadError(f"{_call(round_)}: {len(frames)} frames arrived from {group.world_size} ranks")
    numbers, bodies = zip(*map(split_frame, frames), strict=True)
    check_headers(numbers, agreement, _call(round_))
    total = sent = round_.layout.zeros()
    with np.errstate(over="ignore", invalid="ignore"):
        for rank, received in enumerate(bodies):
            values = _decode(codec, received, round_, rank)
            total = total + values
            sent = values if rank == group.rank else sent
    return Exchanged(total, sent)


def _decode(codec: GatheredCodec, body: npt.NDArray[np.uint8], round_: Round, rank: int) -> FloatArray:
    size = codec.body_size(round_.layout)
    if body.size != size:
        raise PayloadError(f"{_call(round_)}: rank {rank} sent {body.size} bytes where {size} are due")
    if not size:
        return round_.layout.zeros()
    try:
        return codec.decode(body, round_)
    except PayloadError as error:
        raise PayloadError(f"{_call(round_)}: rank {rank} sent a bad payload: {error}") from error


def _exchange_summed(group: RankGroup, codec: SummedCodec, offer: Offer) -> Exchanged:
    round_ = offer.round_
    agreement = agreement_of(codec, round_)
    passes = (codec if offer.values.size else NoCompression()).exchange(offer.values, round_)
    summed: FloatArray | None = None
    while True:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                payload = next(passes) if summed is None else passes.send(summed)
        except StopIteration as end:
            return end.value
        refusal = offer.refusal
        if refusal is None and not np.isfinite(payload).all():
            refusal = OverflowError(f"{_call(round_)}: encoding overflows {payload.dtype}; scale the array down")
        summed = _sum_over_ranks(group, payload, agreement, refusal, round_)


def _sum_over_ranks(
    group: RankGroup, payload: FloatArray, agreement: int, refusal: Exception | None, round_: Round
) -> FloatArray:
    refuses = refusal is not None
    positions = ballot(agreement, refuses, group.rank, group.world_size, payload.dtype)
    message = np.concatenate([np.zeros_like(payload) if refuses else payload, positions])
    with _own_refusal_first(refusal):
        summed = group.all_reduce(message, op="sum")
    if summed.shape != message.shape or summed.dtype != message.dtype:
        raise PayloadError(
            f"{_call(round_)}: the sum is {summed.dtype} of {summed.shape}, not like its {message.size} terms"
        )
    check_ballot(summed[payload.size :], agreement, _call(round_))
    if not np.isfinite(summed).all():
        raise OverflowError(f"{_call(round_)}: the sum over ranks overflows {payload.dtype}; scale the arrays down")
    return summed[: payload.size]


@contextmanager
def _own_refusal_first(refusal: Exception | None) -> Iterator[None]:
    """Raise this rank's own reason once the others have heard of it, even where telling them failed."""
    try:
        yield
    except Exception as error:
        if refusal is not None:
            raise refusal from error
        raise
    if refusal is not None:
        raise refusal


def _call(round_: Round) -> str:
    return f"compressed all_reduce of key {round_.key!r}, step {round_.step}"

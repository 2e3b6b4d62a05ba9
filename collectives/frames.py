"""The fixed header in front of every message, and the checks that come before anything else is believed.

A header says which session, generation, sequence number, operation, element type and size a message belongs to. A
receiver knows the header it expects, so matching is one comparison of 64 bytes; only when they differ are the
fields decoded, to say what each side meant. Nothing that arrives is ever unpickled.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dmlgbm.collectives.errors import ProtocolError
from dmlgbm.collectives.kernels.layout import HEADER_BYTES

MAGIC = b"DMLC"
VERSION = 1
# One message; larger arrays would not fit the memory of any rank that could take part.
MAXIMUM_PAYLOAD = 1 << 40
# What an abort frame may say. Longer reasons are cut.
MAXIMUM_REASON = 4096

_LAYOUT = struct.Struct("<4sBBBBQIIQ8sQQiHBB")


class Kind(IntEnum):
    """What a frame is for."""

    DATA = 1
    ABORT = 2  # the payload says why; the sender sends nothing more
    PROBE = 3  # a rank that waits says what for; no payload
    GOODBYE = 4  # the sender closed its communicator; no payload
    REQUEST = 5  # client to server
    REPLY = 6  # server to client


class Operation(IntEnum):
    """Which call a data frame belongs to."""

    SEND = 1
    BROADCAST = 2
    ALL_REDUCE = 3
    REDUCE = 4
    ALL_GATHER = 5
    GATHER = 6
    SCATTER = 7
    REDUCE_SCATTER = 8
    ALL_TO_ALL = 9
    BARRIER = 10


@dataclass(frozen=True)
class Header:
    """The fields of a frame. `root` is the root of a rooted collective and the tag of a point-to-point message."""

    kind: int
    session: int
    generation: int
    rank: int
    operation: int = 0
    reducer: int = 0
    sequence: int = 0
    dtype: bytes = b""
    count: int = 0
    payload: int = 0
    root: int = 0
    phase: int = 0
    algorithm: int = 0
    detail: int = 0

    def encode(self) -> bytes:
        return _LAYOUT.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.operation,
            self.reducer,
            self.session,
            self.generation,
            self.rank,
            self.sequence,
            self.dtype,
            self.count,
            self.payload,
            self.root,
            self.phase,
            self.algorithm,
            self.detail,
        )


def decode(data: bytes, maximum_payload: int = MAXIMUM_PAYLOAD) -> Header:
    """The header in 64 bytes, or ProtocolError when no rank of this version could have sent it."""
    if len(data) != HEADER_BYTES:
        raise ProtocolError(f"a header has {HEADER_BYTES} bytes, not {len(data)}")
    magic, version, kind, operation, reducer, session, generation, rank, sequence, *rest = _LAYOUT.unpack(data)
    dtype, count, payload, root, phase, algorithm, detail = rest
    if magic != MAGIC:
        raise ProtocolError(f"a frame starts with {MAGIC!r}, not {magic!r}: the peer is not a rank of this package")
    if version != VERSION:
        raise ProtocolError(f"the peer speaks version {version} of the protocol, this rank version {VERSION}")
    if kind not in Kind.__members__.values():
        raise ProtocolError(f"unknown kind of frame: {kind}")
    limit = {Kind.ABORT: MAXIMUM_REASON, Kind.PROBE: 0, Kind.GOODBYE: 0}.get(Kind(kind), maximum_payload)
    if payload > limit:
        raise ProtocolError(f"a frame of kind {Kind(kind).name} announces {payload} bytes; at most {limit} are allowed")
    return Header(
        kind, session, generation, rank, operation, reducer, sequence, dtype.rstrip(b"\0"), count, payload, root, phase,
        algorithm, detail,
    )  # fmt: skip


def session_number(session: str) -> int:
    """Sixty-four bits that stand for a session id in headers."""
    return int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "little")


def dtype_code(dtype: np.dtype[np.generic]) -> bytes:
    """Eight bytes that tell element types apart: numpy's own short text, or a digest where that says too little."""
    if dtype.hasobject:
        raise TypeError(f"arrays of Python objects cannot be sent: dtype={dtype}")
    text = dtype.str.encode()
    if dtype.names is None and dtype.subdtype is None and len(text) <= 8:
        return text
    return b"#" + hashlib.sha256(repr(dtype).encode()).hexdigest()[:7].encode()

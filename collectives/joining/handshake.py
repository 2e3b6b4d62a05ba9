"""How two ranks make sure of each other before either believes a byte: four short messages of fixed size.

    dialler                        listener
    hello, nonce            ->
                            <-     nonce, proof
    proof                   ->
                            <-     verdict, signed

A proof is an HMAC-SHA256, keyed with the session's secret, over everything said so far and the role of the prover,
so neither side can be fooled with its own words. Only after both proofs does the listener say whether it wants the
dialler (right generation, world and rank), in a signed verdict. Both sides are generators without any socket: they
yield (bytes to send, number of bytes wanted) and are sent those bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import IntEnum

from dmlgbm.collectives.errors import (
    AuthenticationError,
    CollectiveError,
    MismatchError,
    ProtocolError,
    StaleGenerationError,
)

Steps = Generator[tuple[bytes, int], bytes, "Hello"]

_MAGIC = b"DMLH"
_VERSION = 1
_HELLO = struct.Struct("<4sBBH16sIIII16s")
_VERDICT = struct.Struct("<BxxxIII")
_NONCE_BYTES = 16
_PROOF_BYTES = 32


class Refusal(IntEnum):
    """Why a listener does not want a dialler that knows the secret."""

    NONE = 0
    GENERATION = 1
    WORLD = 2
    RANK = 3
    PURPOSE = 4


class Purpose(IntEnum):
    """What a connection is for."""

    MESH = 1
    PARAMETER_SERVER = 2
    REPORTS = 3


@dataclass(frozen=True)
class Hello:
    """Who dials, and whom it wants to reach."""

    session: str
    generation: int
    rank: int
    peer: int
    world_size: int
    purpose: int = Purpose.MESH

    def encode(self, nonce: bytes) -> bytes:
        session = _session_digest(self.session)
        return _HELLO.pack(
            _MAGIC, _VERSION, self.purpose, 0, session, self.generation, self.rank, self.peer, self.world_size, nonce
        )


@dataclass(frozen=True)
class Verdict:
    """What the listener says to a dialler it has authenticated, with its own side of the story."""

    refusal: Refusal
    generation: int
    world_size: int
    rank: int


def _session_digest(session: str) -> bytes:
    return hashlib.sha256(session.encode()).digest()[:16]


def _proof(secret: bytes, role: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, role + b"".join(parts), "sha256")


def dial(hello: Hello, secret: bytes) -> Steps:
    """The dialler's side; ends with its own hello, or raises."""
    words = hello.encode(secrets.token_bytes(_NONCE_BYTES))
    answer = yield words, _NONCE_BYTES + _PROOF_BYTES
    nonce, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"listener", words, nonce)):
        raise AuthenticationError(
            f"rank {hello.peer} does not know the secret of session {hello.session!r}: give every rank the same record"
        )
    answer = yield _proof(secret, b"dialler", words, nonce), _VERDICT.size + _PROOF_BYTES
    fields, proof = answer[: _VERDICT.size], answer[_VERDICT.size :]
    if not hmac.compare_digest(proof, _proof(secret, b"verdict", words, nonce, fields)):
        raise AuthenticationError(
            f"the answer of rank {hello.peer} in session {hello.session!r} was altered on its way"
        )
    code, *own = _VERDICT.unpack(fields)
    if code:
        raise _refused(hello, Verdict(Refusal(code), *own))
    return hello


def answer(session: str, secret: bytes, judge: Callable[[Hello], Verdict]) -> Steps:
    """The listener's side; ends with the hello of a dialler that `judge` accepted, or raises."""
    words = yield b"", _HELLO.size
    magic, version, purpose, _, digest, generation, rank, peer, world_size, _ = _HELLO.unpack(words)
    if magic != _MAGIC or version != _VERSION:
        raise ProtocolError("the first bytes are not those of a rank of this version")
    if not hmac.compare_digest(digest, _session_digest(session)):
        raise AuthenticationError("the dialler belongs to another session")
    nonce = secrets.token_bytes(_NONCE_BYTES)
    proof = yield nonce + _proof(secret, b"listener", words, nonce), _PROOF_BYTES
    if not hmac.compare_digest(proof, _proof(secret, b"dialler", words, nonce)):
        raise AuthenticationError("the dialler does not know the session's secret")
    hello = Hello(session, generation, rank, peer, world_size, purpose)
    verdict = judge(hello)
    fields = _VERDICT.pack(verdict.refusal, verdict.generation, verdict.world_size, verdict.rank)
    yield fields + _proof(secret, b"verdict", words, nonce, fields), 0
    if verdict.refusal:
        raise _refused(hello, verdict)
    return hello


def _refused(hello: Hello, verdict: Verdict) -> CollectiveError:
    sides = f"rank {hello.rank} dialled rank {hello.peer} in session {hello.session!r}"
    if verdict.refusal == Refusal.GENERATION:
        return StaleGenerationError(
            f"{sides} with generation {hello.generation}, but rank {verdict.rank} is in generation "
            f"{verdict.generation}: the lower one is left over from before a restart"
        )
    if verdict.refusal == Refusal.WORLD:
        return MismatchError(
            f"{sides} for a world of {hello.world_size} ranks, but rank {verdict.rank} has {verdict.world_size}"
        )
    if verdict.refusal == Refusal.PURPOSE:
        return MismatchError(f"{sides} for purpose {hello.purpose}, which that address does not serve")
    return MismatchError(f"{sides}, but the address is that of rank {verdict.rank} or that rank is connected already")

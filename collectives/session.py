"""One rank's part in a session: runs work with a deadline, and turns every way to stop into one clear error everywhere.

Whatever goes wrong on one rank reaches all: the rank records the error, tells every peer it can (an abort frame
with the reason), and closes its connections; peers that wait for it do the same in turn. A rank that has waited for
a while without a message sends a probe that says what it waits for, so that ranks which wait for each other in
different calls find out at once instead of at the deadline.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import replace
from typing import NoReturn

import numpy as np

from dmlgbm.collectives.errors import (
    AbortedError,
    ClosedError,
    CollectiveError,
    CollectiveTimeout,
    MismatchError,
    PeerLostError,
    ProtocolError,
    StaleGenerationError,
)
from dmlgbm.collectives.frames import MAXIMUM_REASON, Header, Kind, Operation, decode
from dmlgbm.collectives.kernels.layout import (
    DONE,
    ERROR_NUMBER,
    EXPIRED,
    HEADER_BYTES,
    HUNG_UP,
    INTERRUPTED,
    LOST,
    RECEIVE,
    SEND,
    STOPPED_PEER,
    STOPPED_ROW,
    WOKEN,
)
from dmlgbm.collectives.mismatch import describe_mismatch, signature
from dmlgbm.collectives.transports.contract import Transport, Work

CallName = str | tuple[Operation, int]

PROBE_SECONDS = 0.25
# How long to look for the reason when a connection ends without one.
REASON_SECONDS = 0.2
# How much of what a peer sent before its end is searched for the reason.
_LOOK_AHEAD = 1 << 16
# How long `abort` waits for a thread that is inside a call; it comes back unless it runs the caller's own code.
_ABORT_SECONDS = 1.0
# `detail` of a probe for a rank whose messages its sender waits for.
_WAITS_FOR_YOU = 1

_ERROR_CODES: dict[int, type[CollectiveError]] = {
    1: AbortedError,
    2: MismatchError,
    3: CollectiveTimeout,
    4: PeerLostError,
    5: ProtocolError,
    6: StaleGenerationError,
}


class Session:
    """The transport of one rank, and the one error that ended the session, if any."""

    def __init__(self, transport: Transport, name: str, number: int, generation: int) -> None:
        self.transport = transport
        self.rank = transport.rank
        self.world_size = transport.world_size
        self.name = name
        self.number = number
        self.generation = generation
        self.sequence = 0  # of the next collective
        self.bytes_sent = 0  # by calls that have ended well, headers included
        self.failure: CollectiveError | None = None
        self._closed = False
        self._state = threading.Lock()  # guards `failure` and `_closed`
        self._running = threading.RLock()  # held by the thread that uses the transport

    def check_usable(self) -> None:
        """Raise what ended the session, if it has ended."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._closed:
            raise ClosedError(f"rank {self.rank}: the communicator of session {self.name!r} is closed")

    def hold(self) -> None:
        """Keep the transport for the calling thread, whose kernels will use it without `run`, until `let_go`."""
        self._running.acquire()
        try:
            self.check_usable()
        except BaseException:
            self._running.release()
            raise

    def let_go(self, error: CollectiveError | None, work: Work | None) -> None:
        """End `hold`. An `error` ends the session, and so does an abort that has waited for this moment."""
        try:
            reason = self.failure if self.failure is not None else error
            if reason is not None:
                self._fail(reason, work)
        finally:
            self._running.release()

    def run(self, work: Work, call: CallName, timeout: float, stopped_with: int | None = None) -> None:
        """Run work from where it stands to its end, or end the session.

        `call` names it in errors: a text, or operation and sequence. `stopped_with` is the status that a kernel brought
        back which ran the work so far.
        """
        with self._running:
            self.check_usable()
            try:
                self._run(work, call, timeout, stopped_with)
                self.bytes_sent += work.bytes_sent
            except CollectiveError as error:
                self._fail(error, work)
                raise
            except BaseException as error:
                # Messages may be half through: nothing on these connections can be trusted any more.
                self._fail(AbortedError(f"rank {self.rank} left {_words(call)}: {error!r}", self.rank), work)
                raise

    def _run(self, work: Work, call: CallName, timeout: float, status: int | None) -> None:
        began = time.monotonic_ns()
        until, probe_at = began + int(timeout * 1e9), began + int(PROBE_SECONDS * 1e9)
        while True:
            if status is None:
                status = self.transport.run(work, min(until, probe_at))
            if status == DONE:
                return
            if status == WOKEN:
                self.check_usable()
            elif status == LOST:
                self._lost(work, _words(call))
            elif status == HUNG_UP:
                self._ended(int(work.control[STOPPED_PEER]), _words(call))
            elif status == EXPIRED and time.monotonic_ns() < until:
                self._send_probes(work)
                probe_at = until
            elif status == EXPIRED:
                raise self._late(work, _words(call), timeout)
            elif status != INTERRUPTED:
                self._unexpected(work, _words(call))
            status = None

    def _send_probes(self, work: Work) -> None:
        waiting = work.unfinished(RECEIVE)
        if not waiting:
            return
        expected = decode(work.headers[waiting[0][0]].tobytes())
        probe = replace(expected, kind=Kind.PROBE, rank=self.rank, payload=0, phase=0)
        awaited = {peer for _, peer in waiting}
        busy = {peer for _, peer in work.unfinished(SEND)}
        for peer in set(range(self.world_size)) - busy - {self.rank}:
            detail = _WAITS_FOR_YOU if peer in awaited else 0
            self.transport.send_now(peer, replace(probe, detail=detail).encode())

    def _late(self, work: Work, call: str, timeout: float) -> CollectiveTimeout:
        receiving = sorted({peer for _, peer in work.unfinished(RECEIVE)})
        sending = sorted({peer for _, peer in work.unfinished(SEND)} - set(receiving))
        silent = f"nothing complete came from ranks {receiving}" if receiving else ""
        deaf = f"ranks {sending} did not take what was sent" if sending else ""
        return CollectiveTimeout(
            f"rank {self.rank}: {call} did not end within {timeout:g} s: {' and '.join(filter(None, (silent, deaf)))}. "
            f"They are stuck, slow or not calling it; raise timeout= if they only need longer",
            sorted({*receiving, *sending}),
        )

    def _unexpected(self, work: Work, call: str) -> None:
        """Deal with a header other than the expected one: drop a probe, raise for everything else."""
        row, peer = int(work.control[STOPPED_ROW]), int(work.control[STOPPED_PEER])
        while work.moved_bytes[row] >= HEADER_BYTES and (work.received[row] != work.headers[row]).any():
            header = decode(work.received[row].tobytes())
            expected = decode(work.headers[row].tobytes())
            if header.kind == Kind.ABORT:
                overread = bytes(work.payload(row)[: int(work.moved_bytes[row]) - HEADER_BYTES])
                raise self._read_reason(peer, header, overread)
            if header.kind == Kind.GOODBYE:
                raise self._left(peer, call)
            if header.kind != Kind.PROBE or self._never_meets(header, expected):
                raise describe_mismatch(self.name, self.rank, call, expected, header)
            _drop_header(work, row)

    def _never_meets(self, probe: Header, expected: Header) -> bool:
        """Whether a peer says that it waits in a call that cannot go on together with the one this rank is in.

        A probe may have been sent long ago, in a call that needed nothing more of this rank. Collectives and messages
        are numbered apart, so that equal numbers say something of two collectives only. A message that this rank
        waits for cannot come from a peer that waits for this rank in a collective which this rank has yet to begin.
        """
        if probe.operation == Operation.SEND:
            return False
        if expected.operation == Operation.SEND:
            return probe.detail == _WAITS_FOR_YOU and probe.sequence >= self.sequence
        return probe.sequence == expected.sequence and signature(probe) != signature(expected)

    def _ended(self, peer: int, call: str) -> None:
        """A peer that this rank does not wait for now sends no more: find out whether it was the end of its part."""
        data = self.transport.look_ahead(peer, _LOOK_AHEAD)
        position = 0
        while position + HEADER_BYTES <= len(data):
            header = decode(data[position : position + HEADER_BYTES])
            position += HEADER_BYTES
            if header.kind == Kind.ABORT:
                raise _decode_reason(header, data[position : position + header.payload])
            position += header.payload
            if header.kind == Kind.GOODBYE or position > _LOOK_AHEAD - HEADER_BYTES:
                # It left in good order, or so much is there that its end will be seen when that has been received.
                self.transport.stop_watching(peer)
                return
        raise PeerLostError(f"rank {self.rank}: rank {peer} was lost during {call}: its process died", peer)

    def _lost(self, work: Work, call: str) -> NoReturn:
        """A connection ended; look for a peer that says why, then raise."""
        peer, error = int(work.control[STOPPED_PEER]), int(work.control[ERROR_NUMBER])
        amid = {each for row, each in work.unfinished(RECEIVE) if work.moved_bytes[row]}
        streams = set(range(self.world_size)) - amid - {self.rank}
        until = time.monotonic() + REASON_SECONDS
        while streams and time.monotonic() < until:
            for each in sorted(streams):
                if not self._look_for_reason(each):
                    streams.discard(each)
            time.sleep(0.005)
        reason = f"error {error}" if error else "its end of the connection was closed"
        raise PeerLostError(f"rank {self.rank}: rank {peer} was lost during {call} ({reason}): its process died", peer)

    def _look_for_reason(self, peer: int) -> bool:
        """Raise what an abort frame of this peer says; whether looking again may help."""
        while data := self.transport.receive_now(peer, HEADER_BYTES):
            if len(data) < HEADER_BYTES:
                return False
            header = decode(data)
            if header.kind == Kind.ABORT:
                raise self._read_reason(peer, header, b"")
            if header.kind != Kind.PROBE:
                return False
        return data is not None

    def _left(self, peer: int, call: str) -> PeerLostError:
        return PeerLostError(
            f"rank {self.rank}: rank {peer} closed its communicator while this rank was in {call}", peer
        )

    def _read_reason(self, peer: int, header: Header, data: bytes) -> CollectiveError:
        until = time.monotonic() + REASON_SECONDS
        while len(data) < header.payload and time.monotonic() < until:
            more = self.transport.receive_now(peer, header.payload - len(data))
            if more is None:
                break
            data += more
            if not more:
                time.sleep(0.001)
        return _decode_reason(header, data)

    def _fail(self, error: CollectiveError, work: Work | None) -> None:
        """Record the error, tell the peers, give back the transport. The caller holds `_running`."""
        with self._state:
            if self._closed:
                return
            if self.failure is None:
                self.failure = error
            self._closed = True
        amid = set() if work is None else {peer for row, peer in work.unfinished(SEND) if work.moved_bytes[row]}
        frame = self._abort_frame(self.failure)
        for peer in set(range(self.world_size)) - amid - {self.rank}:
            self.transport.send_now(peer, frame)
        self.transport.close()

    def _abort_frame(self, error: CollectiveError) -> bytes:
        code = next((code for code, kind in _ERROR_CODES.items() if type(error) is kind), 1)
        origin = error.origin if isinstance(error, AbortedError) else self.rank
        ranks = getattr(error, "missing_ranks", None) or ((error.rank,) if isinstance(error, PeerLostError) else ())
        ranks = ranks[:64]
        reason = struct.pack(f"<H{len(ranks)}I", len(ranks), *ranks) + str(error).encode()
        reason = reason[:MAXIMUM_REASON]
        header = Header(
            Kind.ABORT, self.number, self.generation, self.rank, payload=len(reason), root=origin, detail=code
        )
        return header.encode() + reason

    def abort(self, reason: str) -> None:
        """End the session on every rank: calls under way and later ones raise AbortedError. Any thread may call it."""
        error = AbortedError(f"rank {self.rank} aborted session {self.name!r}: {reason}", self.rank)
        with self._state:
            if self.failure is not None or self._closed:
                return
            self.failure = error
        self.transport.wake()
        # A thread inside `run` comes back, finds the error and tells the peers; otherwise this thread does.
        if self._running.acquire(timeout=_ABORT_SECONDS):
            try:
                self._fail(error, None)
            finally:
                self._running.release()

    def close(self) -> None:
        """End this rank's part; peers that still wait for it get an error, those that do not never notice."""
        self._end_call_under_way()
        with self._running:
            with self._state:
                if self._closed:
                    return
                self._closed = True
            goodbye = Header(Kind.GOODBYE, self.number, self.generation, self.rank).encode()
            for peer in range(self.world_size):
                if peer != self.rank:
                    self.transport.send_now(peer, goodbye)
            self.transport.close()

    def _end_call_under_way(self) -> None:
        """A call under way in another thread would keep `close` waiting until its deadline: end it."""
        if self._running.acquire(blocking=False):
            self._running.release()
        else:
            self.abort("the communicator was closed during a call")


def _words(call: CallName) -> str:
    return call if isinstance(call, str) else f"{call[0].name.lower()} (sequence {call[1]})"


def _drop_header(work: Work, row: int) -> None:
    """Forget the header of a frame without payload; what was read after it belongs to the next frame."""
    after = bytes(work.payload(row)[: int(work.moved_bytes[row]) - HEADER_BYTES])
    header = after[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
    work.received[row] = np.frombuffer(header, np.int64)
    rest = after[HEADER_BYTES:]
    work.payload(row)[: len(rest)] = rest
    work.moved_bytes[row] = len(after)


def _decode_reason(header: Header, data: bytes) -> CollectiveError:
    kind = _ERROR_CODES.get(header.detail, AbortedError)
    n_ranks = int.from_bytes(data[:2], "little")
    end = 2 + 4 * n_ranks
    if end > len(data):
        n_ranks, end = 0, min(2, len(data))
    ranks = struct.unpack_from(f"<{n_ranks}I", data, 2) if n_ranks else ()
    text = data[end:].decode(errors="replace")
    if "[told by rank" not in text:
        text += f" [told by rank {header.rank}]"
    if kind is PeerLostError:
        return PeerLostError(text, ranks[0] if ranks else header.rank)
    if kind is CollectiveTimeout:
        return CollectiveTimeout(text, ranks)
    if kind is AbortedError:
        return AbortedError(text, header.root)
    return kind(text)

"""What a transport does: it runs programs, phase by phase, and says why when it stops early.

A transport moves bytes in order between each pair of ranks and nothing else. It knows the header it must see in
front of each message; a different one is handed back, and the session decides what it means. What was moved is kept
in the `Work`, so that a run can be continued after a probe, a signal or a frame that the session dealt with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.collectives.kernels.layout import (
    ACTION,
    COMBINE,
    CONTROL_WORDS,
    COPY,
    COUNT,
    DONE,
    FROM_BUFFER,
    FROM_OFFSET,
    HEADER_BYTES,
    HEADER_WORDS,
    NEXT_ROW,
    PEER,
    PHASE,
    RECEIVE,
    SEND,
    SEQUENCE_WORD,
    TO_BUFFER,
    TO_OFFSET,
)
from dmlgbm.collectives.kernels.program_loop import get_ready
from dmlgbm.collectives.reducers import Array, Reducer

Words = npt.NDArray[np.int64]


@dataclass(eq=False)
class Work:
    """One run of a program: its messages' headers, its buffers, and how far it has come."""

    rows: Words
    headers: Words  # a row for each row of the program; for receiving rows the header that must arrive
    dtype: np.dtype[Any]
    reducer: Reducer | None
    buffers: list[Array] = field(default_factory=list)  # SOURCE, TARGET, SCRATCH: one-dimensional, of `dtype`
    addresses: Words = field(default_factory=lambda: np.zeros(3, np.int64))

    def __post_init__(self) -> None:
        self.received = np.zeros((len(self.rows), HEADER_WORDS), np.int64)
        self._state = np.zeros(CONTROL_WORDS + len(self.rows), np.int64)
        self.control: Words = self._state[:CONTROL_WORDS]
        self.moved_bytes: Words = self._state[CONTROL_WORDS:]
        self._sequences: Words = self.headers[:, SEQUENCE_WORD]
        self.sizes: Words = HEADER_BYTES + self.rows[:, COUNT] * self.dtype.itemsize
        self.bytes_sent = int(self.sizes[self.rows[:, ACTION] == SEND].sum())
        self.operation = None if self.reducer is None else self.reducer.compiled(self.dtype)
        # For kernels: without a reduction only bytes move, whatever they mean.
        self.like = np.empty(0, self.dtype if self.operation is not None else np.uint8)
        self.fused = self.operation is not None or not (self.rows[:, ACTION] == COMBINE).any()
        self.kernel_view = (self.rows, self.dtype.itemsize, self.headers, self.received, self.moved_bytes)

    def start(self, sequence: int | Words, buffers: list[Array]) -> None:
        """Get ready to run (again), with these buffers and under this sequence number (or one for each row)."""
        self.buffers = buffers
        if self.operation is not None:
            get_ready(self.headers, self._state, self.addresses, sequence, *buffers)
            return
        self.addresses[:] = [buffer.__array_interface__["data"][0] for buffer in buffers]
        self._sequences[:] = sequence
        self._state.fill(0)

    def end_of_phase(self) -> int:
        """The row after the last one of the phase that the run stands in."""
        first = int(self.control[NEXT_ROW])
        later = np.flatnonzero(self.rows[first:, PHASE] != self.rows[first, PHASE])
        return first + int(later[0]) if len(later) else len(self.rows)

    def unfinished(self, action: int) -> list[tuple[int, int]]:
        """(row, peer) of the messages of the present phase that are not through."""
        first = int(self.control[NEXT_ROW])
        if first >= len(self.rows):
            return []
        rows = range(first, self.end_of_phase())
        return [
            (row, int(self.rows[row, PEER]))
            for row in rows
            if self.rows[row, ACTION] == action and self.moved_bytes[row] < self.sizes[row]
        ]

    def payload(self, row: int) -> memoryview:
        """The bytes that a sending or receiving row moves, without its header."""
        sends = self.rows[row, ACTION] == SEND
        buffer = self.buffers[int(self.rows[row, FROM_BUFFER if sends else TO_BUFFER])]
        offset, count = int(self.rows[row, FROM_OFFSET if sends else TO_OFFSET]), int(self.rows[row, COUNT])
        return buffer[offset : offset + count].view(np.uint8).data

    def run_local_rows(self, first: int, last: int) -> None:
        """Copy and combine with numpy, as rows first..last say."""
        for row in self.rows[first:last]:
            if row[ACTION] not in (COPY, COMBINE):
                continue
            count = int(row[COUNT])
            source = self.buffers[row[FROM_BUFFER]][row[FROM_OFFSET] : row[FROM_OFFSET] + count]
            target = self.buffers[row[TO_BUFFER]][row[TO_OFFSET] : row[TO_OFFSET] + count]
            if row[ACTION] == COPY:
                target[:] = source
            elif count:
                assert self.reducer is not None
                target[:] = self.reducer.combine(target, source)


class Transport(ABC):
    """Ordered bytes between this rank and every other. One thread runs work; only `wake` may come from others."""

    rank: int
    world_size: int

    @abstractmethod
    def exchange(self, first: int, last: int, work: Work, until: int) -> int:
        """Move the messages of rows first..last; a status of `kernels.layout`. `until` is monotonic nanoseconds."""

    @abstractmethod
    def send_now(self, peer: int, data: bytes) -> bool:
        """Send a few bytes between messages if that is possible without waiting."""

    @abstractmethod
    def receive_now(self, peer: int, size: int) -> bytes | None:
        """At most `size` bytes that have arrived already; b"" when none have, None at the end of the stream."""

    @abstractmethod
    def look_ahead(self, peer: int, size: int) -> bytes:
        """At most `size` bytes that have arrived already, which stay there to be received."""

    @abstractmethod
    def stop_watching(self, peer: int) -> None:
        """Do not come back with HUNG_UP for this peer again."""

    @abstractmethod
    def wake(self) -> None:
        """Make a run that is under way come back with WOKEN, and every later one. Any thread may call it."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Peers see the end of the stream after what was sent."""

    @property
    def wires(self) -> tuple[Any, ...]:
        """What the kernels of this transport need, where there are any."""
        raise TypeError(f"{type(self).__name__} has no kernels; use native sockets or memory")

    def run(self, work: Work, until: int) -> int:
        """Run a program to its end, or say why that did not happen."""
        while work.control[NEXT_ROW] < len(work.rows):
            first, last = int(work.control[NEXT_ROW]), work.end_of_phase()
            status = self.exchange(first, last, work, until)
            if status != DONE:
                return status
            work.run_local_rows(first, last)
            work.control[NEXT_ROW] = last
        return DONE


def unfinished_rows(work: Work, first: int, last: int) -> list[int]:
    """The rows of first..last whose messages are not through."""
    return [
        row
        for row in range(first, last)
        if work.rows[row, ACTION] in (SEND, RECEIVE) and work.moved_bytes[row] < work.sizes[row]
    ]

"""The messages of one phase over non-blocking sockets: everything is sent and received side by side.

All bytes of a phase move in one call without the GIL: send what the system takes, poll for the rest together with
the descriptor that wakes an aborted run, and check every header against the one this rank expects. What has been
done is kept in `moved_bytes`, so a call that came back early (deadline, signal, a frame that needs Python) is repeated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgbm.collectives.kernels.compiler import inlined, kernel, pointer_to, poll, recvmsg, sendmsg
from dmlgbm.collectives.kernels.layout import (
    ACTION,
    COUNT,
    DONE,
    ERROR_NUMBER,
    EXPIRED,
    FROM_BUFFER,
    FROM_OFFSET,
    HEADER_BYTES,
    HEADER_WORDS,
    HUNG_UP,
    INTERRUPTED,
    LOST,
    PEER,
    RECEIVE,
    SEND,
    STOPPED_PEER,
    STOPPED_ROW,
    TO_BUFFER,
    TO_OFFSET,
    UNEXPECTED,
    WOKEN,
)
from dmlgbm.collectives.kernels.shortage import cores_are_short
from dmlgbm.collectives.kernels.system_calls import (
    INTERRUPTED_CALL,
    NO_SIGNAL,
    POLL_HANG_UP,
    POLL_IN,
    POLL_OUT,
    WOULD_BLOCK,
    describe_message,
    error_number,
    monotonic_nanoseconds,
)

_LONGEST_POLL_MILLISECONDS = 60_000


@inlined
def _stopped(status: Any, row: Any, peer: Any, error: Any, control: Any) -> Any:
    control[STOPPED_ROW] = row
    control[STOPPED_PEER] = peer
    control[ERROR_NUMBER] = error
    return status


@kernel
def _send(row: Any, work: Any, addresses: Any, descriptors: Any, scratch: Any, control: Any) -> int:
    program, itemsize, headers, _, moved_bytes = work
    size = program[row, COUNT] * itemsize
    payload = addresses[program[row, FROM_BUFFER]] + program[row, FROM_OFFSET] * itemsize
    header = headers.ctypes.data + row * HEADER_BYTES
    peer = program[row, PEER]
    message = describe_message(scratch, header, payload, size, moved_bytes[row], HEADER_BYTES)
    sent = sendmsg(np.int32(descriptors[peer]), message, np.int32(NO_SIGNAL))
    if sent >= 0:
        moved_bytes[row] += sent
        return DONE
    error = error_number()
    if error in (WOULD_BLOCK, INTERRUPTED_CALL):
        return DONE
    return _stopped(LOST, row, peer, error, control)


@kernel
def _receive(row: Any, work: Any, addresses: Any, descriptors: Any, scratch: Any, control: Any) -> int:
    program, itemsize, headers, received, moved_bytes = work
    size = program[row, COUNT] * itemsize
    payload = addresses[program[row, TO_BUFFER]] + program[row, TO_OFFSET] * itemsize
    header = received.ctypes.data + row * HEADER_BYTES
    peer = program[row, PEER]
    before = moved_bytes[row]
    message = describe_message(scratch, header, payload, size, before, HEADER_BYTES)
    got = recvmsg(np.int32(descriptors[peer]), message, np.int32(0))
    if got == 0:
        return _stopped(LOST, row, peer, 0, control)
    if got < 0:
        error = error_number()
        if error in (WOULD_BLOCK, INTERRUPTED_CALL):
            return DONE
        return _stopped(LOST, row, peer, error, control)
    moved_bytes[row] = before + got
    if before < HEADER_BYTES <= before + got:
        for word in range(HEADER_WORDS):
            if received[row, word] != headers[row, word]:
                return _stopped(UNEXPECTED, row, peer, 0, control)
    return DONE


@inlined
def _fill_polls(
    first: Any, last: Any, work: Any, descriptors: Any, watched: Any, awaited: Any, polls: Any, rows: Any
) -> Any:
    """List the descriptors to wait for after the wake descriptor in position 0; how many positions are used.

    Peers of which nothing is awaited are watched all the same: one that ends the session must be noticed at once.
    """
    awaited[:] = 0
    program, itemsize, _, _, moved_bytes = work
    count = 1
    for row in range(first, last):
        action = program[row, ACTION]
        if action > RECEIVE or moved_bytes[row] == HEADER_BYTES + program[row, COUNT] * itemsize:
            continue
        events = POLL_OUT if action == SEND else POLL_IN
        polls[count] = descriptors[program[row, PEER]] | (events << 32)
        rows[count] = row
        count += 1
        if action == RECEIVE:
            awaited[program[row, PEER]] = 1
    if count == 1:
        return count
    for peer in range(len(watched)):
        if watched[peer] != 0 and awaited[peer] == 0:
            polls[count] = descriptors[peer] | (POLL_HANG_UP << 32)
            rows[count] = -1 - peer
            count += 1
    return count


@inlined
def _milliseconds_until(until: Any, scratch: Any) -> Any:
    left = until - monotonic_nanoseconds(scratch)
    return max(0, min(left // 1_000_000 + 1, _LONGEST_POLL_MILLISECONDS)) if left > 0 else 0


@kernel
def _wait(polls: Any, count: Any, until: Any, spin: Any, scratch: Any) -> int:
    """Wait for one of the listed descriptors, for the first `spin` nanoseconds without going to sleep.

    A peer that has a core of its own answers within microseconds. Waking up takes longer than that, and on a core that
    another thread has taken meanwhile up to a tick of the scheduler. Where cores are short it sleeps at once.
    """
    listed, n_listed = pointer_to(polls.ctypes.data), np.uint64(count)
    now = monotonic_nanoseconds(scratch) if spin > 0 else 0
    if spin > 0 and cores_are_short(scratch, now):
        spin = 0
    asleep_at = min(until, now + spin)
    while spin > 0 and monotonic_nanoseconds(scratch) < asleep_at:
        ready = poll(listed, n_listed, np.int32(0))
        if ready != 0:
            return ready
    return poll(listed, n_listed, np.int32(_milliseconds_until(until, scratch)))


@kernel
def exchange_over_sockets(
    first: Any, last: Any, work: Any, addresses: Any, wires: Any, until: Any, control: Any
) -> int:
    """Run the messages of rows first..last to their end, or say why that did not happen."""
    program, _, _, _, moved_bytes = work
    descriptors, wake, watched, awaited, polls, rows, spin, scratch = wires
    for row in range(first, last):
        if program[row, ACTION] == SEND and moved_bytes[row] == 0:
            status = _send(row, work, addresses, descriptors, scratch, control)
            if status != DONE:
                return status
    while True:
        count = _fill_polls(first, last, work, descriptors, watched, awaited, polls, rows)
        if count == 1:
            return DONE
        polls[0] = wake | (POLL_IN << 32)
        ready = _wait(polls, count, until, spin, scratch)
        if ready < 0:
            return INTERRUPTED
        if ready == 0 and monotonic_nanoseconds(scratch) >= until:
            return EXPIRED
        if polls[0] >> 48 != 0:
            return WOKEN
        for position in range(1, count):
            if polls[position] >> 48 == 0:
                continue
            row = rows[position]
            if row < 0:
                return _stopped(HUNG_UP, 0, -1 - row, 0, control)
            if program[row, ACTION] == SEND:
                status = _send(row, work, addresses, descriptors, scratch, control)
            else:
                status = _receive(row, work, addresses, descriptors, scratch, control)
            if status != DONE:
                return status

"""The messages of one phase through rings in memory that ranks share, threads or processes alike.

Each ordered pair of ranks has a ring that one writes and the other reads; each rank has a bell that others ring when
they wrote something for it or made room. A rank with nothing to do notes the number of its bell, looks once more,
and sleeps in the kernel until that number changes (a futex), so no core is burnt and no wake-up is lost.

Words of the shared area, in lines of eight (a cache line): for each rank a bell line, then for each ordered pair a
line of its writer and a line of its reader. The bytes of the rings follow.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np

from dmlgbm.collectives.kernels.compiler import (
    add_to_word,
    copy_bytes,
    inlined,
    kernel,
    load_word,
    pointer_to,
    poll,
    store_word,
    system_call,
)
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
    POLL_HANG_UP,
    TIME,
    error_number,
    monotonic_nanoseconds,
)

_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98}
AVAILABLE = sys.platform == "linux" and platform.machine() in _FUTEX_NUMBERS

LINE = 8
# A bell line: how often it was rung, whether its owner sleeps, whether its owner was told to stop.
BELL, SLEEPS, STOPPED = range(3)
# A writer's or reader's line: bytes moved so far, and whether that side has left.
MOVED, LEFT = range(2)

_FUTEX = _FUTEX_NUMBERS.get(platform.machine(), 0)
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
# How often a sleeping rank looks whether the processes it waits for are alive.
_PEER_LOOK_NANOSECONDS = 100_000_000


def count_words(world_size: int) -> int:
    """Words before the rings."""
    return LINE * (world_size + 2 * world_size * world_size)


@inlined
def _writer_line(world_size: Any, writer: Any, reader: Any) -> Any:
    return LINE * (world_size + 2 * (writer * world_size + reader))


@kernel
def ring_bell(words: Any, rank: Any) -> None:
    """Tell a rank that something has changed for it."""
    add_to_word(words, LINE * rank + BELL, 1)
    if load_word(words, LINE * rank + SLEEPS) != 0:
        address = words.ctypes.data + 8 * (LINE * rank + BELL)
        system_call(_FUTEX, pointer_to(address), _FUTEX_WAKE, 1, pointer_to(0))


@kernel
def leave(words: Any, world_size: Any, rank: Any) -> None:
    """Mark every ring of this rank as left on its side and wake the others."""
    for peer in range(world_size):
        if peer != rank:
            store_word(words, _writer_line(world_size, rank, peer) + LEFT, 1)
            store_word(words, _writer_line(world_size, peer, rank) + LINE + LEFT, 1)
            ring_bell(words, peer)


@kernel
def stop(words: Any, rank: Any) -> None:
    """Make this rank's run come back, now and later."""
    store_word(words, LINE * rank + STOPPED, 1)
    ring_bell(words, rank)


@kernel
def write_ring(area: Any, writer: Any, reader: Any, address: Any, size: Any) -> int:
    """Put as many bytes into a ring as there is room for; how many, or -1 when the reader has left."""
    words, rings, capacity, world_size = area
    line = _writer_line(world_size, writer, reader)
    if load_word(words, line + LINE + LEFT) != 0:
        return -1
    written = words[line + MOVED]
    room = capacity - (written - load_word(words, line + LINE + MOVED))
    size = min(size, room)
    if size > 0:
        start = written % capacity
        ring = rings + (writer * world_size + reader) * capacity
        part = min(size, capacity - start)
        copy_bytes(ring + start, address, part)
        copy_bytes(ring, address + part, size - part)
        store_word(words, line + MOVED, written + size)
    return size


@kernel
def read_ring(area: Any, writer: Any, reader: Any, address: Any, size: Any) -> int:
    """Take at most `size` bytes out of a ring; how many, or -1 when it is empty and its writer has left."""
    words, rings, capacity, world_size = area
    line = _writer_line(world_size, writer, reader)
    left = load_word(words, line + LEFT)
    taken = words[line + LINE + MOVED]
    there = load_word(words, line + MOVED) - taken
    size = min(size, there)
    if size == 0:
        return -1 if left != 0 and there == 0 else 0
    start = taken % capacity
    ring = rings + (writer * world_size + reader) * capacity
    part = min(size, capacity - start)
    copy_bytes(address, ring + start, part)
    copy_bytes(address + part, ring, size - part)
    store_word(words, line + LINE + MOVED, taken + size)
    return size


@kernel
def look_into_ring(area: Any, writer: Any, reader: Any, address: Any, size: Any) -> int:
    """Copy at most `size` bytes of a ring without taking them out; how many."""
    words, rings, capacity, world_size = area
    line = _writer_line(world_size, writer, reader)
    taken = words[line + LINE + MOVED]
    size = min(size, load_word(words, line + MOVED) - taken)
    start = taken % capacity
    ring = rings + (writer * world_size + reader) * capacity
    part = min(size, capacity - start)
    copy_bytes(address, ring + start, part)
    copy_bytes(address + part, ring, size - part)
    return size


@inlined
def _stopped(status: Any, row: Any, peer: Any, control: Any) -> Any:
    control[STOPPED_ROW] = row
    control[STOPPED_PEER] = peer
    control[ERROR_NUMBER] = 0
    return status


@kernel
def _move(row: Any, work: Any, addresses: Any, area: Any, rank: Any, control: Any) -> int:
    """Send or receive what is possible now."""
    program, itemsize, headers, received, moved_bytes = work
    size = program[row, COUNT] * itemsize
    peer = program[row, PEER]
    sends = program[row, ACTION] == SEND
    if sends:
        header = headers.ctypes.data + row * HEADER_BYTES
        payload = addresses[program[row, FROM_BUFFER]] + program[row, FROM_OFFSET] * itemsize
    else:
        header = received.ctypes.data + row * HEADER_BYTES
        payload = addresses[program[row, TO_BUFFER]] + program[row, TO_OFFSET] * itemsize
    while moved_bytes[row] < HEADER_BYTES + size:
        done = moved_bytes[row]
        address, left = payload + (done - HEADER_BYTES), HEADER_BYTES + size - done
        if done < HEADER_BYTES:
            address, left = header + done, HEADER_BYTES - done
        moved = write_ring(area, rank, peer, address, left) if sends else read_ring(area, peer, rank, address, left)
        if moved < 0:
            return _stopped(LOST, row, peer, control)
        if moved == 0:
            break
        moved_bytes[row] = done + moved
        if not sends and done < HEADER_BYTES <= done + moved:
            for word in range(HEADER_WORDS):
                if received[row, word] != headers[row, word]:
                    return _stopped(UNEXPECTED, row, peer, control)
    return DONE


@inlined
def _move_all(first: Any, last: Any, work: Any, addresses: Any, area: Any, rank: Any, control: Any) -> Any:
    """Move every message that can be moved and ring the bells of its peer; status, what is left, whether any moved."""
    program, itemsize, _, _, moved_bytes = work
    waiting, moved = 0, False
    for row in range(first, last):
        if program[row, ACTION] > RECEIVE:
            continue
        total = HEADER_BYTES + program[row, COUNT] * itemsize
        before = moved_bytes[row]
        if before == total:
            continue
        status = _move(row, work, addresses, area, rank, control)
        if moved_bytes[row] != before:
            moved = True
            ring_bell(area[0], program[row, PEER])
        if status != DONE:
            return status, waiting, moved
        if moved_bytes[row] != total:
            waiting += 1
    return DONE, waiting, moved


@inlined
def _sleep(words: Any, rank: Any, bell: Any, until: Any, scratch: Any) -> Any:
    """Sleep until the bell is rung, for at most the time between two looks; whether a signal ended it."""
    wait = min(until - monotonic_nanoseconds(scratch), _PEER_LOOK_NANOSECONDS)
    store_word(words, LINE * rank + SLEEPS, 1)
    interrupted = False
    if wait > 0 and load_word(words, LINE * rank + BELL) == bell:
        scratch[TIME], scratch[TIME + 1] = 0, wait
        address = pointer_to(words.ctypes.data + 8 * (LINE * rank + BELL))
        low = np.int64(np.uint64(bell) & np.uint64(0xFFFFFFFF))
        status = system_call(_FUTEX, address, _FUTEX_WAIT, low, pointer_to(scratch.ctypes.data + 8 * TIME))
        interrupted = status < 0 and error_number() == INTERRUPTED_CALL
    store_word(words, LINE * rank + SLEEPS, 0)
    return interrupted


@kernel
def _awaits(first: Any, last: Any, work: Any, peer: Any) -> int:
    """The first row whose message with this peer is not through, or -1."""
    program, itemsize, _, _, moved_bytes = work
    for row in range(first, last):
        left = moved_bytes[row] != HEADER_BYTES + program[row, COUNT] * itemsize
        if program[row, ACTION] <= RECEIVE and left and program[row, PEER] == peer:
            return row
    return -1


@inlined
def _is_dead(descriptor: Any, polls: Any) -> Any:
    """Whether the process at the other end of a connection is gone."""
    if descriptor < 0:
        return False
    polls[0] = descriptor | (POLL_HANG_UP << 32)
    return poll(pointer_to(polls.ctypes.data), np.uint64(1), np.int32(0)) > 0


@kernel
def _find_leaver(area: Any, rank: Any, descriptors: Any, watched: Any, polls: Any, look: Any) -> int:
    """A watched peer that has left or (looked at only now and then) whose process is gone, or -1."""
    words, _, _, world_size = area
    for peer in range(world_size):
        if watched[peer] == 0:
            continue
        if load_word(words, _writer_line(world_size, peer, rank) + LEFT) != 0:
            return peer
        if look and _is_dead(descriptors[peer], polls):
            return peer
    return -1


@kernel
def exchange_over_rings(first: Any, last: Any, work: Any, addresses: Any, wires: Any, until: Any, control: Any) -> int:
    """Run the messages of rows first..last to their end, or say why that did not happen."""
    area, rank, descriptors, watched, polls, spin, scratch = wires
    words = area[0]
    moved_at = monotonic_nanoseconds(scratch)
    next_look = moved_at + _PEER_LOOK_NANOSECONDS
    leaver = np.int64(-1)
    if spin > 0 and cores_are_short(scratch, moved_at):
        spin = 0
    while True:
        bell = load_word(words, LINE * rank + BELL)
        status, waiting, moved = _move_all(first, last, work, addresses, area, rank, control)
        if status != DONE or waiting == 0:
            return status
        if moved:
            moved_at = monotonic_nanoseconds(scratch)
            continue
        if load_word(words, LINE * rank + STOPPED) != 0:
            return WOKEN
        if leaver >= 0:  # and nothing it had written before is left to read
            row = _awaits(first, last, work, leaver)
            return _stopped(HUNG_UP if row < 0 else LOST, max(row, 0), leaver, control)
        now = monotonic_nanoseconds(scratch)
        leaver = _find_leaver(area, rank, descriptors, watched, polls, now >= next_look)
        if now >= next_look:
            next_look = now + _PEER_LOOK_NANOSECONDS
        if leaver >= 0:
            continue
        if now >= until:
            return EXPIRED
        if now - moved_at < spin:
            continue
        if _sleep(words, rank, bell, until, scratch):
            return INTERRUPTED

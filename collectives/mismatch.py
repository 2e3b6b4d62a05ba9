"""Says in words how the header that arrived differs from the one that was expected, and what that means."""

from __future__ import annotations

from dmlgbm.collectives.errors import CollectiveError, MismatchError, ProtocolError, StaleGenerationError
from dmlgbm.collectives.frames import Header, Kind, Operation
from dmlgbm.collectives.reducers import reducer_name


def signature(header: Header) -> tuple[int | bytes, ...]:
    """What all ranks of one call must agree on."""
    return (header.operation, header.reducer, header.dtype, header.count, header.root, header.algorithm)


def describe_mismatch(session: str, rank: int, call: str, expected: Header, arrived: Header) -> CollectiveError:
    """The error for a header that this rank, in `call`, did not expect."""
    if arrived.session != expected.session:
        return ProtocolError(f"rank {rank}: a frame of another session arrived on a connection of session {session!r}")
    if arrived.generation != expected.generation:
        return StaleGenerationError(
            f"rank {rank} is in generation {expected.generation} of session {session!r}, but rank {expected.rank} "
            f"sent a frame of generation {arrived.generation}"
        )
    if arrived.rank != expected.rank or arrived.kind not in (Kind.DATA, Kind.PROBE):
        return ProtocolError(f"rank {rank}: rank {expected.rank} sent a frame that says it is from rank {arrived.rank}")
    return MismatchError(
        f"rank {rank} and rank {arrived.rank} of session {session!r} do not do the same: "
        f"rank {rank} is in {_words(expected)}, rank {arrived.rank} in {_words(arrived)}. "
        f"Every rank must make the same calls in the same order with arrays of the same type and size"
    )


def _words(header: Header) -> str:
    name = Operation(header.operation).name.lower() if header.operation in Operation.__members__.values() else "?"
    where = "tag" if header.operation == Operation.SEND else "root"
    parts = [
        f"{name} (sequence {header.sequence}, dtype {header.dtype.decode(errors='replace') or 'none'}",
        f"{header.count} elements",
        f"{where} {header.root}",
        f"phase {header.phase} with {header.payload} bytes",
    ]
    if header.reducer:
        parts.insert(1, f"op {reducer_name(header.reducer)}")
    return ", ".join(parts) + ")"

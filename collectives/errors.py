"""What can go wrong between ranks, one class for each thing a caller may want to treat differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class CollectiveError(RuntimeError):
    """Base of every error this package raises about communication."""


class MismatchError(CollectiveError):
    """Ranks are not doing the same thing: another operation, element type, size, root or order of calls."""


class StaleGenerationError(MismatchError):
    """A peer belongs to another generation of the session: one side was left over from before a restart."""


class ProtocolError(CollectiveError):
    """Bytes arrived that no rank of this version sends."""


class AuthenticationError(CollectiveError):
    """A peer could not prove that it knows the session's secret, or its TLS certificate was refused."""


class CollectiveTimeout(CollectiveError):  # noqa: N818 - the name callers know from other libraries
    """A deadline passed; `missing_ranks` are those that were waited for."""

    def __init__(self, message: str, missing_ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing_ranks = tuple(missing_ranks)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.missing_ranks)


class PeerLostError(CollectiveError):
    """The connection to a rank ended: its process died, it closed its communicator, or the network failed."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rank)


class AbortedError(CollectiveError):
    """`abort` was called on some rank, or a call on some rank failed; `origin` is that rank."""

    def __init__(self, message: str, origin: int) -> None:
        super().__init__(message)
        self.origin = origin

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.origin)


class ClosedError(CollectiveError):
    """The communicator was used after it had been closed."""


class RankFailedError(CollectiveError):
    """A launched rank ended with an error or did not end in time."""

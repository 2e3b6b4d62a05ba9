"""What can go wrong with the store, one class for each thing a caller may want to treat differently."""

from __future__ import annotations

from dmlgbm.collectives.errors import ClosedError, CollectiveError, CollectiveTimeout


class StoreError(CollectiveError):
    """Base of the errors of the parameter server that are not about time or a closed store."""


class UnknownKeyError(StoreError, KeyError):
    """No worker has initialised the key."""

    def __str__(self) -> str:
        return RuntimeError.__str__(self)  # a KeyError would show the message in quotes


class KeyMismatchError(StoreError, ValueError):
    """An array does not fit its key: another length, element type, kind or row number out of range."""


class RefusedError(StoreError):
    """The servers understood the request and will not do it."""


class WorkerExpiredError(StoreError):
    """This worker was silent for too long and no longer belongs to the store; make a new one."""


class StoreTimeout(CollectiveTimeout):
    """A deadline passed. A push that timed out may still be applied, but never more than once.

    `missing_ranks` are the workers whose clocks were waited for, as far as a server could say.
    """


class StoreClosedError(ClosedError):
    """The store was used after it had been closed."""


class SnapshotError(StoreError):
    """A snapshot is incomplete, damaged or made for another number of shards."""

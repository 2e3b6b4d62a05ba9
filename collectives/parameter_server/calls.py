"""A worker's connection to the store: starts requests, matches results with those who wait, turns refusals into errors.

One call may be several requests, one for each part of a key or each shard. Its handle is done when all have ended;
what the call returns or raises is made from their results then.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dmlgbm.collectives.errors import AuthenticationError, MismatchError
from dmlgbm.collectives.handles import Handle
from dmlgbm.collectives.parameter_server.errors import (
    KeyMismatchError,
    RefusedError,
    StoreClosedError,
    StoreError,
    StoreTimeout,
    UnknownKeyError,
    WorkerExpiredError,
)
from dmlgbm.collectives.parameter_server.membership import Membership
from dmlgbm.collectives.parameter_server.messages import Action, Outcome, Query, Status
from dmlgbm.collectives.parameter_server.reactor import Reactor
from dmlgbm.collectives.parameter_server.view import View, rank_of
from dmlgbm.collectives.parameter_server.worker_core import Result, WorkerCore

Returned = TypeVar("Returned")
Request = tuple[int, Action | Query]

# How long closing may wait for the coordinator to confirm; without it the others wait for the worker's deadline.
_LEAVE_SECONDS = 1.0
_ERRORS: dict[int, type[StoreError]] = {
    Status.UNKNOWN_KEY: UnknownKeyError,
    Status.MISMATCH: KeyMismatchError,
    Status.REFUSED: RefusedError,
    Status.EXPIRED: WorkerExpiredError,
}


@dataclass(frozen=True)
class Subject:
    """What a call is about, for its errors."""

    operation: str
    key: str
    clock: int


@dataclass
class _Call:
    subject: Subject
    expected: int
    results: dict[int, Result] = field(default_factory=dict)
    handle: Handle[Any] | None = None


class _StoreHandle(Handle[Returned]):
    """A call whose caller, while it waits, takes the answers from the connections itself."""

    def __init__(self, call: Callable[[], Returned], reactor: Reactor) -> None:
        super().__init__(call)
        self._reactor = reactor

    def wait(self, timeout: float | None = None) -> Returned:
        began = time.monotonic()
        self._reactor.serve_until(self.done, timeout)
        return super().wait(None if timeout is None else max(0.0, timeout - (time.monotonic() - began)))


class Calls:
    """The calls of one worker that are under way."""

    def __init__(self, membership: Membership, rank: int, timeout: float) -> None:
        self._membership = membership
        self._core = WorkerCore(secrets.randbits(62), rank)
        self._reactor = Reactor("worker", self._core, membership, after=self._collect)
        self._changed = threading.Condition(self._reactor.lock)
        self._waiting: dict[int, _Call] = {}
        self._closed = False
        self._reactor.start()
        try:
            self._wait_until(lambda: self._core.ready, timeout, "enrol")
        except BaseException:
            self.close()
            raise

    @property
    def worker(self) -> int:
        return self._core.worker

    @property
    def view(self) -> View:
        assert self._core.view is not None
        return self._core.view

    @property
    def bytes_sent(self) -> int:
        return self._reactor.bytes_sent

    def wait_for_start(self, timeout: float) -> None:
        """Let the others know that this worker has joined, and wait until the store begins."""
        self._reactor.use(lambda core: core.joined(time.monotonic()))
        self._wait_until(lambda: self._core.started, timeout, "start")

    def _wait_until(self, condition: Callable[[], bool], timeout: float, operation: str) -> None:
        until = time.monotonic() + timeout
        with self._changed:
            while not condition():
                self._check_open(operation)
                error = self._reactor.dial_error
                if isinstance(error, AuthenticationError | MismatchError):
                    raise error
                if time.monotonic() >= until:
                    raise StoreTimeout(self._why_not_started(operation, timeout, error))
                self._changed.wait(min(0.1, until - time.monotonic()))

    def _why_not_started(self, operation: str, timeout: float, error: BaseException | None) -> str:
        text = f"{operation}: the store at {self._membership.coordinator} was not ready within {timeout:g} s"
        view = self._core.view
        if self._core.refusal:
            return f"{text}: {self._core.refusal}"
        if view is None:
            return f"{text}: no answer from the coordinator" + (f" ({error})" if error is not None else "")
        if not view.formed:
            return f"{text}: only {len(view.addresses)} servers have come so far"
        return f"{text}: workers {[rank_of(worker) for worker in view.workers]} have come so far"

    def start(
        self,
        subject: Subject,
        requests: Sequence[Request],
        finish: Callable[[list[Result]], Returned],
        timeout: float,
    ) -> Handle[Returned]:
        """Start the requests of one call; `finish` makes its result from theirs, which are all good."""
        call = _Call(subject, len(requests))
        call.handle = _StoreHandle(lambda: finish(self._good_results(call)), self._reactor)
        until = time.monotonic() + timeout
        with self._changed:
            self._check_open(subject.operation)
            for shard, content in requests:
                ticket = self._start_one(subject, shard, content, until)
                self._waiting[ticket] = call
            self._reactor.flush()
        return call.handle

    def _start_one(self, subject: Subject, shard: int, content: Action | Query, until: float) -> int:
        now = time.monotonic()
        if isinstance(content, Query):
            return self._core.read(shard, content, now, until - now)
        while not self._core.room(shard):
            if now >= until:
                raise StoreTimeout(f"{self._describe(subject, shard)}: too many earlier pushes have no answer")
            self._changed.wait(until - now)
            self._check_open(subject.operation)
            now = time.monotonic()
        return self._core.update(shard, content, now, until - now)

    def _check_open(self, operation: str) -> None:
        if self._closed:
            raise StoreClosedError(f"{operation}: the store was closed")
        if self._core.expired:
            raise WorkerExpiredError(
                f"{operation}: worker {rank_of(self._core.worker)} was silent for too long and does not take part any "
                f"more; make a new store"
            )
        if self._reactor.failure is not None:
            raise StoreError(
                f"{operation}: the connection failed: {self._reactor.failure!r}"
            ) from self._reactor.failure

    def _collect(self) -> None:
        """Hand results on; called under the lock after the core has been given something."""
        if self._closed or self._reactor.failure is not None:
            self._core.fail_all(Outcome(Status.CLOSED, 0, "the store was closed"))
        results, self._core.results = self._core.results, []
        for result in results:
            call = self._waiting.pop(result.ticket, None)
            if call is None:
                continue
            call.results[result.ticket] = result
            if len(call.results) == call.expected:
                assert call.handle is not None
                call.handle.run()
        self._changed.notify_all()

    def _good_results(self, call: _Call) -> list[Result]:
        for result in call.results.values():
            if result.outcome.status not in (Status.DONE, Status.LATE):
                raise self._error(call.subject, result)
        return [call.results[ticket] for ticket in sorted(call.results)]

    def _error(self, subject: Subject, result: Result) -> Exception:
        text = f"{self._describe(subject, result.shard)}: {result.outcome.text}"
        if result.outcome.status == Status.TIMEOUT:
            missing = [rank_of(worker) for worker in result.missing]
            return StoreTimeout(text, missing)
        if result.outcome.status == Status.CLOSED:
            return StoreClosedError(text)
        return _ERRORS[result.outcome.status](text)

    def _describe(self, subject: Subject, shard: int) -> str:
        server = self.view.placements[shard].head
        key = f" of key {subject.key!r}" if subject.key else ""
        return f"{subject.operation}{key} at clock {subject.clock}, server {server} at {self.view.address_of(server)}"

    def close(self) -> None:
        """Leave the store; whoever still waits gets StoreClosedError."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._collect()
            self._core.leave()
            self._reactor.flush()
            self._changed.wait_for(lambda: self._has_left, _LEAVE_SECONDS)
        self._reactor.close()

    @property
    def _has_left(self) -> bool:
        """Whether nobody will wait for this worker, or nobody can be told."""
        return self._core.expired or not self._core.ready or self._reactor.failure is not None

"""A worker process of this machine: reads units from a socket it has inherited, runs them, answers.

The main thread runs units. A second thread reads the socket, so that the end of the client is noticed in the middle
of a fit: the process then ends at once. A worker that belongs to no search for a while ends too.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from dmlgbm.tuning.calls import SearchData, SharedArguments, Split
from dmlgbm.tuning.executors import wire
from dmlgbm.tuning.executors.base import ExecutorError
from dmlgbm.tuning.executors.worker_threads import fit_environment
from dmlgbm.tuning.plan import UnitResult, WorkUnit, run_unit

IDLE_SECONDS = 120.0
SHARED = "shared arguments"


class _Search:
    """What this worker holds of the search it works for."""

    def __init__(self) -> None:
        self.splits: dict[str, Split] = {}
        self.data: SearchData | None = None

    def place(self, name: str, value: Any) -> None:
        if name == SHARED:
            assert isinstance(value, SharedArguments)
            self.data = SearchData(value, self.splits)
        else:
            self.splits[name] = value

    def run(self, unit: WorkUnit, n_threads: int) -> UnitResult:
        assert self.data is not None
        self.data.n_threads = n_threads
        with fit_environment(n_threads):
            return wire.portable(run_unit(unit, self.data))


def main(descriptor: int) -> None:
    """Serve the client at the other end of `descriptor` until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, which tells its workers
    connection = Connection(descriptor)
    messages: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, messages), daemon=True).start()
    search: _Search | None = None
    unreadable = ""
    while True:
        try:
            kind, *rest = messages.get(timeout=IDLE_SECONDS if search is None else None)
        except queue.Empty:
            return
        if kind == "end":
            search, unreadable = None, ""
        elif kind == "place":
            search = search or _Search()
            try:
                search.place(rest[0], rest[1]())
            except Exception:  # noqa: BLE001 - a module that is missing here, or whatever unpickling runs into
                unreadable = traceback.format_exc()
        else:
            assert search is not None
            connection.send_bytes(_answer(search, rest[0], rest[1], rest[2], unreadable))


def _answer(search: _Search, number: int, unit: bytes, n_threads: int, unreadable: str) -> bytes:
    try:
        if unreadable:
            raise ExecutorError(f"A worker process cannot read what the search needs:\n{unreadable}")
        result = search.run(wire.loads(unit), n_threads)
        return wire.dumps((number, result))
    except Exception as error:  # noqa: BLE001 - units that cannot be read, results that cannot be written
        failure = wire.portable(UnitResult([], error=ExecutorError(f"A worker process could not run a unit: {error}")))
        return wire.dumps((number, failure))


def _read(connection: Connection, messages: queue.SimpleQueue[tuple[Any, ...]]) -> None:
    while True:
        try:
            kind, *rest = wire.loads(connection.recv_bytes())
            if kind == "map":
                descriptor = recv_handle(connection)
                messages.put(("place", rest[0], lambda descriptor=descriptor: _map(descriptor)))
            elif kind == "place":
                messages.put(("place", rest[0], lambda data=rest[1]: wire.loads(data)))
            else:
                messages.put((kind, *rest))
        except (EOFError, OSError):
            os._exit(0)


def _map(descriptor: int) -> Any:
    try:
        return wire.mapped_value(descriptor)
    finally:
        os.close(descriptor)

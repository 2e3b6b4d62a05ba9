"""New processes that become ranks: what they are told, what they say, and the signs of life in between.

A process says every few seconds that it runs, from a thread of its own, whatever its main thread computes. One that has
said nothing for long was stopped, or hangs as a whole. Either side of a pipe may stand still in the middle of a
message, so the launcher reads and writes in threads and never waits for a process without a deadline; these
threads end with the process.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from dmlgbm.collectives.errors import RankFailedError
from dmlgbm.collectives.joining.addresses import Listener
from dmlgbm.collectives.joining.join import JoinOptions, join
from dmlgbm.collectives.joining.rendezvous import Rendezvous, this_host
from dmlgbm.collectives.joining.spawning import SpawnedProcess

LISTENERS: dict[str, Callable[[], Listener]] = {
    "tcp": Listener.tcp,
    "tcp6": lambda: Listener.tcp("::1"),
    "unix": Listener.unix,
}

_SECONDS_TO_DIE = 10.0


class Said(IntEnum):
    """What came from a process."""

    ALIVE = 0
    PLACE = 1  # where it listens, and on which host
    JOINED = 2  # it is connected with all others
    END = 3  # its result and its error
    GONE = 4  # nothing more: the launcher's own note


@dataclass(frozen=True)
class Assignment:
    """What a process must know to be a rank, besides its number."""

    transport: str
    options: JoinOptions
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class RankProcess:
    """One new process, seen from the launcher. All processes of a launch put what they say into one queue."""

    def __init__(self, rank: int, assignment: bytes, beat_seconds: float, heard: SimpleQueue[Any]) -> None:
        self.rank = rank
        self._pipe, theirs = multiprocessing.Pipe()
        self.process = SpawnedProcess(target=become_rank, args=(theirs, rank, beat_seconds), name=f"rank-{rank}")
        try:
            self.process.start()
        except BaseException:
            self._pipe.close()
            raise
        finally:
            theirs.close()
        self.heard_at = time.monotonic()
        self._threads: list[threading.Thread] = []
        try:
            self._run(self._read, heard)
            self.tell(assignment)
        except BaseException:  # no thread can be started
            self.kill()
            self.end(time.monotonic())
            raise

    def tell(self, message: bytes) -> None:
        """Start to hand something to the process; if it is gone, that will be heard."""
        self._run(self._write, message)

    def kill(self) -> None:
        """End the process at once, also a stopped one."""
        self.process.kill()

    def end(self, until: float) -> int | None:
        """Let the process end by itself until then, kill it if it has not, and give back all it took; its exit code."""
        self.process.join(max(0.0, until - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join(_SECONDS_TO_DIE)
        for thread in self._threads:
            thread.join(_SECONDS_TO_DIE)
        self._pipe.close()
        exit_code = self.process.exitcode
        if exit_code is not None:
            self.process.close()
        return exit_code

    def _run(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name=f"pipe-of-rank-{self.rank}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _write(self, message: bytes) -> None:
        with suppress(OSError):
            self._pipe.send_bytes(message)

    def _read(self, heard: SimpleQueue[Any]) -> None:
        kind, content = Said.ALIVE, None
        while kind not in (Said.END, Said.GONE):
            try:
                kind, content = self._pipe.recv()
            except (EOFError, OSError):
                kind, content = Said.GONE, None
            except Exception as error:  # noqa: BLE001 - a result or an error of the caller that cannot be unpickled
                failure = RankFailedError(f"what rank {self.rank} reported cannot be read: {error!r}")
                kind, content = Said.END, (None, failure)
            self.heard_at = time.monotonic()
            if kind != Said.ALIVE:
                heard.put((self.rank, kind, content))


def become_rank(pipe: Connection, rank: int, beat_seconds: float) -> None:
    """What a new process does."""
    line = _Line(pipe)
    threading.Thread(target=line.beat, args=(beat_seconds,), name="signs-of-life", daemon=True).start()
    try:
        assignment = _read_assignment(pipe)
        listener = LISTENERS[assignment.transport]()
        line.say(Said.PLACE, (str(listener.address), this_host()))
        record = Rendezvous.from_dict(pickle.loads(pipe.recv_bytes()))  # noqa: S301 - from the process that started this one
        with join(record, rank, listener, assignment.options) as communicator:
            line.say(Said.JOINED, None)
            result = assignment.function(communicator, *assignment.arguments)
        line.say(Said.END, (result, None))
    except BaseException as error:  # noqa: BLE001 - reported to the launcher
        line.report(error)
    line.over.set()


def _read_assignment(pipe: Connection) -> Assignment:
    data = pipe.recv_bytes()
    try:
        assignment: Assignment = pickle.loads(data)  # noqa: S301 - from the process that started this one
    except Exception as error:
        raise ImportError(
            f"a new process cannot load what it is to run ({type(error).__name__}: {error}): put classes and "
            f"functions into a module that new processes can import, or run the ranks as threads"
        ) from error
    return assignment


class _Line:
    """The way to the launcher, for the rank and for its signs of life."""

    def __init__(self, pipe: Connection) -> None:
        self.over = threading.Event()
        self._pipe = pipe
        self._lock = threading.Lock()

    def say(self, kind: Said, content: Any) -> None:
        with self._lock:
            self._pipe.send((kind, content))

    def report(self, error: BaseException) -> None:
        error.add_note("".join(traceback.format_exception(error)))
        try:
            self.say(Said.END, (None, error))
        except OSError:
            os._exit(1)  # the launcher is gone
        except Exception:  # noqa: BLE001 - whatever keeps the error from being pickled
            self.say(Said.END, (None, RankFailedError(f"{type(error).__name__}: {error}")))

    def beat(self, seconds: float) -> None:
        """Say again and again that this process runs; without a launcher there is nobody to work for."""
        while not self.over.wait(seconds):
            try:
                self.say(Said.ALIVE, None)
            except OSError:
                if not self.over.is_set():
                    os._exit(1)

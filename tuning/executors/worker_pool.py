"""Worker processes of this machine: started once, kept for the next search, replaced when they die.

A worker is a fresh interpreter at the other end of a socket. It does not import the user's script again, so scripts
need no `if __name__ == "__main__"`. Starting one takes about a second (numpy, scikit-learn), hence the keeping.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
from collections import deque
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from time import monotonic
from typing import Any

from dmlgbm.gbdt.system.python_process import python_command, python_environment
from dmlgbm.tuning.executors import wire
from dmlgbm.tuning.executors.base import ExecutorError
from dmlgbm.tuning.executors.local_worker import SHARED

# A worker that cannot import what it needs sends the reason as its only message; no pickle begins like this.
_CANNOT_START = b"cannot start: "
_PROGRAM = f"""
try:
    from dmlgbm.tuning.executors.local_worker import main
except BaseException:
    import os, traceback
    reason = {_CANNOT_START!r} + traceback.format_exc().encode()
    os.write(int(sys.argv[1]), len(reason).to_bytes(4, "big") + reason)
    sys.exit(1)
main(int(sys.argv[1]))
"""
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_INLINE_BYTES = 65_536
_SECONDS_TO_DIE = 10.0


class Worker:
    """One process, and what it has been given for the search at hand."""

    def __init__(self, n_threads: int) -> None:
        here, there = Pipe()
        with there:
            self._process = subprocess.Popen(
                python_command(_PROGRAM, str(there.fileno())),
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                env={**dict.fromkeys(_THREAD_VARIABLES, str(n_threads)), **python_environment()},
                process_group=0,  # a terminal's Ctrl-C reaches the client alone
            )
        self.connection: Connection = here
        self.has: set[str] = set()
        self.units: deque[int] = deque()
        """What it has been given to run and has not answered, in order."""
        self._stopped_at: float | None = None

    @property
    def name(self) -> str:
        return f"worker process {self._process.pid}"

    @property
    def process_id(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def seconds_stopped(self) -> float:
        """For how long something has kept the process from running (SIGSTOP), as far as was looked."""
        with suppress(ChildProcessError):
            while change := os.waitid(os.P_PID, self.process_id, os.WSTOPPED | os.WCONTINUED | os.WNOHANG):
                self._stopped_at = monotonic() if change.si_code == os.CLD_STOPPED else None
        return 0.0 if self._stopped_at is None else monotonic() - self._stopped_at

    def place(self, name: str, blob: wire.Blob | bytes) -> int:
        """Hand over a value, once; the number of bytes that this sent or mapped."""
        if name in self.has:
            return 0
        self.has.add(name)
        if isinstance(blob, bytes):
            self.connection.send_bytes(wire.dumps(("place", name, blob)))
            return len(blob)
        self.connection.send_bytes(wire.dumps(("map", name)))
        send_handle(self.connection, blob.file.fileno(), self._process.pid)
        return blob.n_bytes

    def start(self, number: int, unit: bytes, n_threads: int) -> None:
        """Run a unit after those before it; the answer comes over the connection."""
        self.connection.send_bytes(wire.dumps(("unit", number, unit, n_threads)))

    def answer(self) -> Any:
        """What the worker says next; EOFError or OSError if it is gone, ExecutorError if none like it can start."""
        data = self.connection.recv_bytes()
        if data.startswith(_CANNOT_START):
            reason = data.removeprefix(_CANNOT_START).decode(errors="replace")
            raise ExecutorError(f"No worker process of this machine can start. The first one said:\n{reason}")
        return wire.loads(data)

    def require_start(self) -> None:
        """Raise ExecutorError if a worker that cannot be reached has said why."""
        with suppress(EOFError, OSError):
            if self.connection.poll():
                self.answer()

    def end_search(self) -> None:
        """Forget what was placed."""
        self.has.clear()
        with suppress(OSError):
            self.connection.send_bytes(wire.dumps(("end",)))

    def stop(self) -> str:
        """End the process now; how it ended, for people."""
        self.connection.close()
        # A worker that lost its connection ends by itself, unless a kernel call or a stop signal holds it.
        with suppress(subprocess.TimeoutExpired):
            return _ending(self._process.wait(0.5))
        self._process.kill()
        return _ending(self._process.wait(_SECONDS_TO_DIE))

    def kill(self) -> None:
        """End the process in the middle of a fit."""
        self._process.kill()
        self.stop()


def packed(value: object) -> wire.Blob | bytes:
    """Small values travel through the socket, large ones are mapped."""
    blob = wire.Blob(value)
    if blob.n_bytes > _INLINE_BYTES:
        return blob
    blob.close()
    return wire.dumps(value)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    hint = "; the kernel does this when memory runs out" if -code == signal.SIGKILL else ""
    return f"ended by signal {-code} ({name}){hint}"


class WorkerPool:
    """Workers that serve one search at a time."""

    def __init__(self, n_workers: int, n_threads: int) -> None:
        self.n_threads = n_threads
        self.workers = [Worker(n_threads) for _ in range(n_workers)]

    def replace(self, worker: Worker) -> Worker:
        """A new worker in the place of one that is dead or busy with what nobody wants any more."""
        fresh = Worker(self.n_threads)
        self.workers[self.workers.index(worker)] = fresh
        return fresh

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()


_idle: list[WorkerPool] = []
_lock = threading.Lock()


def take_pool(n_workers: int, n_threads: int) -> WorkerPool:
    """A pool that nobody else uses: one that is idle, or a new one."""
    with _lock:
        fitting = [pool for pool in _idle if len(pool.workers) == n_workers and pool.n_threads == n_threads]
        others = [pool for pool in _idle if pool not in fitting]
        _idle[:] = fitting[1:]
    for pool in others:
        pool.close()
    if not fitting:
        return WorkerPool(n_workers, n_threads)
    for worker in list(fitting[0].workers):
        if not worker.is_alive():
            worker.stop()
            fitting[0].replace(worker)
    return fitting[0]


def give_back(pool: WorkerPool) -> None:
    """Keep the workers for the next search."""
    with _lock:
        _idle.append(pool)


def stop_idle_workers() -> None:
    """End all workers that serve no search."""
    with _lock:
        pools, _idle[:] = list(_idle), []
    for pool in pools:
        pool.close()


atexit.register(stop_idle_workers)

__all__ = ["SHARED", "Worker", "WorkerPool", "give_back", "packed", "stop_idle_workers", "take_pool"]

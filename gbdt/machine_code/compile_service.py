"""Has kernels compiled by other processes, several at once, and remembers what was asked for.

Whoever needs a kernel waits for it; kernels that it calls, and those that were announced, are compiled meanwhile by
the other processes. A process without work for some seconds is ended. Each ends by itself when this one is gone. What
a process wrote to its stderr is shown if it fails.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from threading import Condition, Thread, Timer
from typing import Any

from dmlgbm.gbdt.machine_code import object_files
from dmlgbm.gbdt.machine_code.argument_types import from_json
from dmlgbm.gbdt.machine_code.elf_object import ObjectFileError
from dmlgbm.gbdt.machine_code.object_files import KernelTypes, MachineCode
from dmlgbm.gbdt.system.cores import available_threads
from dmlgbm.gbdt.system.python_process import python_command, python_environment

_MOST_WORKERS = 4
_IDLE_SECONDS = 5.0
_SECONDS_TO_START = 60.0
_DEADLINE_SECONDS = 600.0
_ERROR_BYTES_SHOWN = 2_000
_PROGRAM = "from dmlgbm.gbdt.machine_code.compile_worker import main; main()"


class CompilationError(ObjectFileError):
    """A kernel could not be compiled in another process."""


class _Process:
    """A process that compiles. Its stderr goes to memory: only a failure makes it worth reading."""

    def __init__(self, levels: Sequence[str]) -> None:
        self._errors = os.memfd_create("errors of a process that compiles")
        try:
            self._process = subprocess.Popen(
                python_command(_PROGRAM, *levels),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=python_environment(),
                # An interrupt at the terminal is for the process that asked.
                start_new_session=True,
            )
        except BaseException:
            os.close(self._errors)
            raise

    @contextmanager
    def until_ended(self) -> Iterator[None]:
        """Wait for the first sign of life, and at last for the end."""
        try:
            with self._process:
                try:
                    self.answer(_SECONDS_TO_START)
                    yield
                except BaseException:
                    self._process.kill()
                    raise
        finally:
            os.close(self._errors)

    def ask(self, *wanted: Any) -> None:
        """Hand over a request."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next message; a process that sends none in time is ended."""
        assert self._process.stdout is not None
        watch = Timer(seconds, self._process.kill)
        watch.daemon = True
        watch.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise BrokenPipeError(f"it ended with exit code {self._process.wait()}{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        start = max(0, os.fstat(self._errors).st_size - _ERROR_BYTES_SHOWN)
        words = os.pread(self._errors, _ERROR_BYTES_SHOWN, start).decode(errors="replace").strip()
        return f" and said:\n{words}" if words else ""


class _Request:
    def __init__(self, wanted: KernelTypes) -> None:
        self.wanted = wanted
        self.is_done = False
        self.error: str | None = None


class CompileService:
    """A queue of requests and the threads that hand them to processes."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: deque[_Request] = deque()
        self._requests: dict[str, _Request] = {}
        self._n_workers = 0
        self._failure: str | None = None
        self._levels: Sequence[str] = ()
        self._keep: Callable[[KernelTypes, str, MachineCode], None] | None = None
        self._errors: list[str] = []

    def also_for(self, levels: Sequence[str], keep: Callable[[KernelTypes, str, MachineCode], None]) -> None:
        """Before anything else: have each kernel compiled for levels of processors too, and hand that to `keep`."""
        self._levels, self._keep = levels, keep

    def wait_for_all(self) -> list[str]:
        """Wait until everything that was asked for is done, also where nobody else waits; tell what went wrong."""
        with self._changed:
            self._changed.wait_for(lambda: all(request.is_done for request in self._requests.values()))
            return self._errors

    def request(self, wanted: KernelTypes) -> None:
        """Have a kernel compiled when nobody waits for another one."""
        with self._changed:
            self._find_or_add(wanted)

    def compiled(self, wanted: KernelTypes) -> MachineCode:
        """The machine code of a kernel, once it is there."""
        with self._changed:
            if self._failure is not None:
                raise CompilationError(self._failure)
            request = self._find_or_add(wanted)
            if request in self._waiting:
                self._waiting.remove(request)
                self._waiting.appendleft(request)
            if not self._changed.wait_for(lambda: request.is_done, _DEADLINE_SECONDS):
                raise CompilationError(f"no answer on {wanted.label} within {_DEADLINE_SECONDS:.0f} s")
            self._requests.pop(wanted.label, None)
        code = object_files.read(wanted)
        if code is None:
            raise CompilationError(request.error or f"{wanted.label} cannot be read again")
        return code

    def _find_or_add(self, wanted: KernelTypes) -> _Request:
        known = self._requests.get(wanted.label)
        if known is not None:
            return known
        request = _Request(wanted)
        self._requests[wanted.label] = request
        self._waiting.append(request)
        # Who needs one kernel soon needs others: all processes start as soon as one is needed.
        while self._n_workers < min(_MOST_WORKERS, available_threads()):
            if not self._start_worker():
                break
        self._changed.notify_all()
        return request

    def _start_worker(self) -> bool:
        self._n_workers += 1
        try:
            Thread(target=self._work, name="kernel-compilation", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            if self._n_workers == 1:
                self._give_up(f"no thread can be started that waits for a process that compiles kernels: {error}")
            else:
                self._n_workers -= 1
            return False
        return True

    def _work(self) -> None:
        """Keep one process busy until there has been nothing to do for a while."""
        try:
            process = _Process(self._levels)
            with process.until_ended():
                while (request := self._next_request()) is not None:
                    self._finish(request, self._serve(process, request))
        except Exception as error:  # noqa: BLE001 - nobody else in this thread hears of it, and callers wait
            reason = f"{type(error).__name__}: {error}"
            self._give_up(f"a process that compiles kernels cannot be started or is gone: {reason}")

    def _next_request(self) -> _Request | None:
        """What to do next; None, and one worker less, when there is nothing."""
        with self._changed:
            if self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS):
                return self._waiting.popleft()
            # Not when the process has ended, which takes a while: a request that comes meanwhile needs a new one.
            self._n_workers -= 1
            return None

    def _serve(self, process: _Process, request: _Request) -> str | None:
        """Hand over a request and read the answers to it; what went wrong, if anything did."""
        process.ask(request.wanted.kernel, request.wanted.types)
        while "done" not in (answer := process.answer(_DEADLINE_SECONDS)):
            kernel, types = answer["calls"]
            call = KernelTypes(kernel, from_json(types))
            if object_files.read(call) is None:
                self.request(call)
        if not answer["done"]:
            return str(answer["error"])
        code = _code_from(answer["code"])
        object_files.write(request.wanted, code)
        for level, object_file in answer["for_levels"].items():
            assert self._keep is not None
            self._keep(request.wanted, level, replace(code, object_file=base64.b64decode(object_file)))
        return None

    def _finish(self, request: _Request, error: str | None) -> None:
        with self._changed:
            request.error = error
            request.is_done = True
            self._errors += [error] if error is not None else []
            self._changed.notify_all()

    def _give_up(self, reason: str) -> None:
        """Nobody waits for a process that does not come."""
        with self._changed:
            self._n_workers -= 1
            self._failure = reason
            self._errors.append(reason)
            for request in self._requests.values():
                request.error = reason
                request.is_done = True
            self._waiting.clear()
            self._changed.notify_all()


def _code_from(fields: dict[str, Any]) -> MachineCode:
    calls = tuple(KernelTypes(call["kernel"], from_json(call["types"])) for call in fields["calls"])
    object_file = base64.b64decode(fields["object_file"])
    return MachineCode(object_file, fields["entry_from_python"], fields["entry_from_kernels"], calls)


@cache
def the_service() -> CompileService:
    """The one service of this process."""
    return CompileService()


# The threads of the parent do not exist in a forked child.
os.register_at_fork(after_in_child=the_service.cache_clear)

"""New processes of `multiprocessing` that run no file of the current folder in place of a library.

`multiprocessing` starts interpreters that look into the current folder first, for its own modules and for those of the
standard library. Here they start as all helper processes of this project do, see `dmlgbm.gbdt.system.python_process`.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, popen_spawn_posix, reduction, resource_tracker, spawn, util
from typing import Any

from dmlgbm.gbdt.system.python_process import module_paths, python_command, python_environment

_lock = threading.Lock()


class _Popen(popen_spawn_posix.Popen):
    """What starts a process and hands it the pickled `Process`."""

    _fds: list[int]

    def _launch(self, process_obj: Any) -> None:
        """As in the base class, but for the command and the path."""
        with _environment(python_environment() | {"PYTHONSAFEPATH": "1"}):
            tracker: int = resource_tracker.getfd()  # type: ignore[assignment]  # starts a process too, the first time
        self._fds.append(tracker)
        pickled = self._pickled(process_obj)
        result_end, child_result_end = os.pipe()
        child_end, own_end = os.pipe()
        try:
            self._fds.extend([child_end, child_result_end])
            program = (
                f"import multiprocessing.spawn as it; it.spawn_main(tracker_fd={tracker}, pipe_handle={child_end})"
            )
            command = python_command(program, "--multiprocessing-fork")
            with _environment(python_environment()):
                self.pid = util.spawnv_passfds(os.fsencode(spawn.get_executable()), command, self._fds)
            self.sentinel = result_end
            with open(own_end, "wb", closefd=False) as file:
                file.write(pickled)
        finally:
            self.finalizer = util.Finalize(self, _close, [result_end, own_end])
            os.close(child_end)
            os.close(child_result_end)

    def _pickled(self, process_obj: Any) -> memoryview:
        preparation = spawn.get_preparation_data(process_obj._name) | {"sys_path": module_paths()}
        file = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(preparation, file)
            reduction.dump(process_obj, file)
        finally:
            context.set_spawning_popen(None)
        return file.getbuffer()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """For a moment the environment that a process inherits."""
    names = ("PYTHONSAFEPATH", "PYTHONPATH")
    with _lock:
        usual = {name: os.environ.pop(name, None) for name in names}
        os.environ.update((name, wanted[name]) for name in names if name in wanted)
        try:
            yield
        finally:
            for name, value in usual.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


class SpawnedProcess(context.SpawnProcess):
    """A process in a fresh interpreter."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing's name
        return _Popen(process_obj)

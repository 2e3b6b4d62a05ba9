"""Quick tests start no process and no cluster: a run of quick tests alone fails those that do.

`make test-quick` leaves tests out by their markers, so the markers must be true. Beside other tests nothing is checked:
a cluster that they share would be found. The processes that compile kernels are nobody's: whichever test needs a kernel
first has it compiled, unless it is on disk. So is the list of fonts that matplotlib asks for on a new machine.
"""

from __future__ import annotations

import multiprocessing.util
import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

NOT_QUICK = ("processes", "medium", "slow", "fault", "parity", "property_long")
FIXTURES_OF_CLUSTERS = ("cluster", "spark")
_EVENTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
_NOBODYS = ("dmlgbm.gbdt.machine_code.compile_worker", "fc-list")

_this_process = os.getpid()
_started: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _EVENTS and os.getpid() == _this_process:
        command = repr(arguments[:2])
        if not any(name in command for name in _NOBODYS):
            _started.append(f"{event} {command}")


def _note_spawned(path: Any, arguments: Any, descriptors: Any, spawn: Any = multiprocessing.util.spawnv_passfds) -> Any:
    _started.append(f"multiprocessing {arguments!r}")  # raises no audit event
    return spawn(path, arguments, descriptors)


sys.addaudithook(_note)
multiprocessing.util.spawnv_passfds = _note_spawned


def is_quick(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(name) for name in NOT_QUICK)


@cache
def _only_quick(session: pytest.Session) -> bool:
    return all(map(is_quick, session.items))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(name in FIXTURES_OF_CLUSTERS for name in getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.processes)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _started.clear()  # libraries ask programs about the machine when they are imported


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    result = yield
    if _only_quick(item.session):
        distributed = sys.modules.get("distributed")
        schedulers = list(distributed.Scheduler._instances) if distributed is not None else []
        if started := [*_started, *map(repr, schedulers)]:
            pytest.fail(f"A quick test may start no process and no cluster: mark it `processes`, it started {started}")
    return result

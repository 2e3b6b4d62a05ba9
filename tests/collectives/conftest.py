"""Every test of this folder, faults included, leaves no thread, descriptor, process, socket or shared memory behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlgbm.collectives.joining.launch import run_processes
from dmlgbm.gbdt.machine_code import compile_service
from tests.collectives import ranks
from tests.reference.leftovers import nothing_left_behind
from tests.reference.started_processes import is_quick


@pytest.fixture(scope="session")
def _helper_process() -> None:
    run_processes(ranks.nothing, 1)  # multiprocessing starts a process of its own that stays


@pytest.fixture(scope="session", autouse=True)
def _compilers_end_soon() -> Iterator[None]:
    """Processes that compile kernels wait for more work; here they may not outlast the test that needed one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_service, "_IDLE_SECONDS", 1.0)
        yield


@pytest.fixture(autouse=True)
def _no_leftovers(request: pytest.FixtureRequest) -> Iterator[None]:
    if not is_quick(request.node):
        request.getfixturevalue("_helper_process")
    with nothing_left_behind():
        yield

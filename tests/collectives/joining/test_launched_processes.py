"""What the launcher of processes makes of ranks that stop, die or linger at any moment of their lives."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from dmlgbm.collectives import AbortedError, Communicator, PeerLostError, RankFailedError, Rendezvous
from dmlgbm.collectives.joining import launch
from dmlgbm.collectives.joining.launch import launch_processes, run_processes, run_threads

pytestmark = pytest.mark.processes

# Long enough for processes that start on a busy machine, short enough for a test.
SILENCE = 10.0


class SignalsWhenLoaded:
    """An argument that gets the first process which unpickles it into trouble."""

    def __init__(self, number: int, mark: Path) -> None:
        self.number, self.mark = number, mark

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), self.number)


def meet(communicator: Communicator, *_: Any) -> int:
    return int(communicator.all_reduce(np.ones(1, np.int64))[0])


def stop_amid(communicator: Communicator, victim: int) -> str:
    communicator.barrier()
    if communicator.rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    communicator.barrier()
    return "met"


def compute_for(communicator: Communicator, seconds: float) -> int:
    """Python code that never waits, on one rank; the others wait for it."""
    until = time.monotonic() + (seconds if communicator.rank == 0 else 0.0)
    while time.monotonic() < until:
        sum(range(1000))
    return meet(communicator)


def linger(communicator: Communicator, seconds: float) -> int:
    threading.Thread(target=time.sleep, args=(seconds,)).start()
    return meet(communicator)


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_stops_or_dies_while_it_starts_is_lost_and_the_others_end(number: int, tmp_path: Path) -> None:
    argument = SignalsWhenLoaded(number, tmp_path / "mark")
    outcomes = launch_processes(meet, 3, (argument,), timeout=None, silence_timeout=SILENCE)
    lost = [outcome for outcome in outcomes if isinstance(outcome.error, RankFailedError)]
    assert len(lost) == 1
    assert ("no sign of life for 10 s" if number == signal.SIGSTOP else "before it had started") in str(lost[0].error)
    ended = [outcome.error for outcome in outcomes if outcome is not lost[0]]
    assert all(isinstance(error, AbortedError) and f"rank {lost[0].rank} was lost" in str(error) for error in ended)


@pytest.mark.fault
def test_a_large_assignment_does_not_wait_for_a_process_that_has_stopped(tmp_path: Path) -> None:
    arguments = (SignalsWhenLoaded(signal.SIGSTOP, tmp_path / "mark"), np.zeros(1 << 22))
    outcomes = launch_processes(meet, 2, arguments, timeout=None, silence_timeout=SILENCE)
    assert sum(isinstance(outcome.error, RankFailedError) for outcome in outcomes) == 1


@pytest.mark.fault
def test_a_rank_that_stops_amid_its_work_is_lost_and_the_others_hear_of_it() -> None:
    outcomes = launch_processes(stop_amid, 3, (1,), timeout=None, silence_timeout=SILENCE)
    assert isinstance(outcomes[1].error, RankFailedError)
    assert outcomes[1].exit_code == -signal.SIGKILL
    for rank in (0, 2):
        assert isinstance(outcomes[rank].error, PeerLostError)


@pytest.mark.fault
def test_a_rank_killed_before_it_is_introduced_is_lost_and_the_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    create = Rendezvous.create

    def kill_and_create(*places: Any) -> Rendezvous:
        [victim] = [process for process in multiprocessing.active_children() if process.name == "rank-1"]
        victim.kill()
        victim.join()
        return create(*places)

    monkeypatch.setattr(Rendezvous, "create", kill_and_create)
    outcomes = launch_processes(meet, 3, timeout=60)
    assert "rank 1 ended before it had met the others" in str(outcomes[1].error)
    assert isinstance(outcomes[0].error, AbortedError)
    assert isinstance(outcomes[2].error, AbortedError)


@pytest.mark.slow
def test_a_rank_that_computes_for_longer_than_it_may_be_silent_is_no_loss() -> None:
    assert run_processes(compute_for, 2, (2 * SILENCE,), timeout=None, silence_timeout=SILENCE) == [2, 2]


@pytest.mark.fault
def test_a_rank_that_has_reported_and_lingers_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_SECONDS_TO_END", 0.5)
    outcomes = launch_processes(linger, 2, (300.0,), timeout=60)
    assert [outcome.exit_code for outcome in outcomes] == [-signal.SIGKILL] * 2
    assert [(outcome.result, outcome.failed) for outcome in outcomes] == [(2, False)] * 2


def refuse_threads_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.parametrize("transport", ["memory", "tcp", "unix"])
def test_no_rank_begins_where_a_thread_cannot_be_started(
    transport: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    refuse_threads_named(monkeypatch, "rank-2")
    n_threads, begun = threading.active_count(), []
    with pytest.raises(RankFailedError, match=r"no thread can be started for rank 2 of 3 .*: ask for fewer ranks"):
        run_threads(begun.append, 3, transport=transport)
    assert (begun, list(tmp_path.iterdir()), threading.active_count()) == ([], [], n_threads)


def test_processes_end_where_no_thread_can_watch_them(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads_named(monkeypatch, "pipe-of-rank-1")
    before = set(multiprocessing.active_children())  # workers of a cluster that other tests share
    with pytest.raises(RuntimeError, match="can't start new thread"):
        launch_processes(meet, 2)
    assert set(multiprocessing.active_children()) <= before


def test_functions_that_new_processes_cannot_import_travel_by_value_or_are_named() -> None:
    def twice(communicator: Communicator) -> int:
        return 2 * meet(communicator)

    assert run_processes(twice, 2, dumps=cloudpickle.dumps) == [4, 4]
    stray = type("Stray", (), {"__module__": "a_module_that_is_nowhere"})
    with pytest.raises(RankFailedError, match=r"cannot load what it is to run.*a_module_that_is_nowhere"):
        run_processes(meet, 2, (_ByReference(stray),))


class _ByReference:
    """Is what a class of a module looks like that new processes cannot import."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return __import__, (self.kind.__module__,)

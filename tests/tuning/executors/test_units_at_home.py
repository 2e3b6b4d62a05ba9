"""Which unit a free worker of this machine takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dmlgbm.tuning.calls import FitCall
from dmlgbm.tuning.executors.local import LocalExecutor
from dmlgbm.tuning.plan import WorkUnit

pytestmark = pytest.mark.processes


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    made = LocalExecutor(2, 1)
    yield made
    made.close()


def unit(affinity: Any, goes_on: bool = False) -> WorkUnit:
    return WorkUnit((FitCall(0, None, "fold", 0, 0),), affinity=affinity, goes_on=goes_on)


def waiting(executor: LocalExecutor, *units: WorkUnit) -> list[int | None]:
    """The number of the unit that each of the two workers would take."""
    executor.cancel()
    for number, each in enumerate(units):
        executor.submit(number, each, 1)
    return [executor._unit_for(worker) for worker in executor._pool.workers]


def test_a_worker_takes_what_it_has_seen_then_what_nobody_has_then_anything(executor: LocalExecutor) -> None:
    first, second = executor._pool.workers
    executor._home = {"a": first, "b": second}
    assert waiting(executor, unit("c"), unit("b"), unit("a")) == [2, 1]
    assert waiting(executor, unit("b"), unit("c"), unit(None)) == [1, 0]
    assert waiting(executor, unit("a"), unit("a")) == [0, 0]
    assert waiting(executor) == [None, None]


def test_a_run_that_goes_on_is_left_to_its_worker_if_it_is_next_there(executor: LocalExecutor) -> None:
    executor._home = {"a": executor._pool.workers[0]}
    assert waiting(executor, unit("a", goes_on=True)) == [0, None]
    assert waiting(executor, unit("a", goes_on=True), unit("a")) == [0, 1]
    assert waiting(executor, *[unit("a", goes_on=True)] * 3) == [0, 2]


def test_a_busy_worker_gets_its_next_unit_while_many_wait(executor: LocalExecutor) -> None:
    executor.place_shared(None)  # type: ignore[arg-type]
    executor.place_split("fold", ([0], [1]))
    first, second = executor._pool.workers
    for number, affinity in enumerate("abaabb" + "ab" * 8):
        executor.submit(number, unit(affinity), 1)
    executor._start_units()
    assert (list(first.units), list(second.units)) == ([0, 2], [1, 4])
    executor._start_units()
    assert (list(first.units), list(second.units)) == ([0, 2], [1, 4])
    for number in range(3, 8):
        executor._waiting.pop(number, None)
    first.units.pop()
    executor._start_units()
    assert (list(first.units), list(second.units)) == ([0], [1, 4])


def test_what_a_lost_worker_had_been_given_is_next_again(executor: LocalExecutor) -> None:
    executor.place_shared(None)  # type: ignore[arg-type]
    executor.place_split("fold", ([0], [1]))
    for number in range(20):
        executor.submit(number, unit("a" if number % 2 == 0 else "b"), 1)
    executor._start_units()
    lost = executor._lost_unit(executor._pool.workers[0])
    assert lost.unit == 0
    assert list(executor._waiting)[:2] == [2, 4]
    assert sorted(executor._given) == [1, 3]


def test_a_unit_that_ran_elsewhere_does_not_move_the_home_of_the_others(executor: LocalExecutor) -> None:
    first, second = executor._pool.workers
    executor.place_shared(None)  # type: ignore[arg-type]
    executor.place_split("fold", ([0], [1]))
    executor._home = {"a": first}
    executor.submit(0, unit("a"), 1)
    executor._start(second, 0)
    assert executor._home["a"] is first

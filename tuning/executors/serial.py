"""Units one after the other in this process: no copy of the data, no pickling, all cores for each fit.

`wait` runs the next unit. This is where searches with one job run, and searches inside a unit of another search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dmlgbm.gbdt.system.cores import available_threads
from dmlgbm.tuning.calls import SearchData, SharedArguments, Split
from dmlgbm.tuning.executors.base import Done, Event
from dmlgbm.tuning.plan import WorkUnit, run_unit


class SerialExecutor:
    """Runs units in the caller's thread."""

    name = "local"

    def __init__(self) -> None:
        self._data: SearchData | None = None
        self._splits: dict[str, Split] = {}
        self._waiting: deque[tuple[int, WorkUnit]] = deque()

    @property
    def n_slots(self) -> int:
        return 1

    @property
    def n_cores(self) -> int:
        return available_threads()

    def place_shared(self, shared: SharedArguments) -> None:
        self._data = SearchData(shared, self._splits)

    def place_split(self, name: str, split: Split) -> None:
        self._splits[name] = split

    def submit(self, number: int, unit: WorkUnit, n_threads: int) -> None:
        assert self._data is not None
        self._data.n_threads = n_threads
        self._waiting.append((number, unit))

    def wait(self, timeout: float | None) -> Sequence[Event]:
        if not self._waiting:
            return ()
        assert self._data is not None
        number, unit = self._waiting.popleft()
        return [Done(number, run_unit(unit, self._data, keep_warnings=False), "this process")]

    def cancel(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()
        self._splits.clear()
        self._data = None

    def traffic(self) -> dict[str, int]:
        return {"bytes_placed": 0, "bytes_of_units": 0}

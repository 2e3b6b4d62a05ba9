"""A pytest plugin that puts our searches in scikit-learn's place before its test modules are imported.

Loaded with `-p injection` into a pytest of its own, which runs scikit-learn's tests as they are. `SEARCH_BACKEND`
says where fits run. The last line of the output counts the fits of our classes and the calls that went through our
driver: without them the tests would prove nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from sklearn import model_selection

from dmlgbm.tuning import driver, search
from dmlgbm.tuning.executors.worker_pool import stop_idle_workers

CLASSES = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV")
ran: Counter[str] = Counter()


def _counted_fit(self: Any, X: Any, y: Any = None, **params: Any) -> Any:
    fitted = _fit(self, X, y, **params)
    ran["fits"] += 1
    ran["calls"] += self.search_report_.calls_answered
    ran[f"fits on {self.search_report_.backend}"] += 1
    return fitted


_fit = search.SearchOnExecutors.fit
search.SearchOnExecutors.fit = _counted_fit  # type: ignore[method-assign]
for _name in CLASSES:
    setattr(model_selection, _name, getattr(search, _name))
assert driver.Driver


@pytest.fixture(autouse=True, scope="session")
def _cluster() -> Any:
    if os.environ["SEARCH_BACKEND"] == "local":
        yield
        stop_idle_workers()
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"injected: {dict(ran)}")

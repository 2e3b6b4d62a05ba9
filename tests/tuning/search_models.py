"""Estimators for the tests of searches: they leave traces on the disk, wait, fail or kill their process."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.tree import DecisionTreeClassifier

from dmlgbm.sklearn_api import DMLGBMClassifier


class TracedTree(DecisionTreeClassifier):
    """A tree that writes a file into `log` for every fit, named after its parameters, rows and process."""

    def __init__(self, max_depth: int = 3, log: str | None = None, pause: float = 0.0, random_state: int = 0) -> None:
        super().__init__(max_depth=max_depth, random_state=random_state)
        self.log = log
        self.pause = pause

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Self:
        if self.log is not None:
            name = f"{self.max_depth}-{int(np.abs(np.asarray(X)).sum() * 1e6)}-{os.getpid()}-{uuid.uuid4().hex}"
            (Path(self.log) / name).touch()
        time.sleep(self.pause)
        return super().fit(X, y, sample_weight, check_input)


class DeadlyTree(TracedTree):
    """Kills its process: always if `max_depth` is `deadly_depth`, or once in a run if `once` names a file."""

    def __init__(
        self,
        max_depth: int = 3,
        log: str | None = None,
        pause: float = 0.0,
        random_state: int = 0,
        deadly_depth: int = -1,
        once: str | None = None,
    ) -> None:
        super().__init__(max_depth, log, pause, random_state)
        self.deadly_depth = deadly_depth
        self.once = once

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Self:
        super().fit(X, y, sample_weight, check_input)
        if self.max_depth == self.deadly_depth and not (self.once is not None and Path(self.once).exists()):
            if self.once is not None:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self


class LazyBoosting(ClassifierMixin, BaseEstimator):
    """Trains on Dask collections on the cluster that it runs on, and computes its predictions there."""

    def __init__(self, num_leaves: int = 4) -> None:
        self.num_leaves = num_leaves

    def fit(self, X: Any, y: Any) -> Self:
        import dask.array as da

        self.model_ = DMLGBMClassifier(n_estimators=2, num_leaves=self.num_leaves)
        self.model_.fit(da.from_array(X, chunks=(60, -1)), da.from_array(y, chunks=60))
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: Any) -> Any:
        import dask.array as da

        return self.model_.predict(da.from_array(X, chunks=(60, -1))).compute()


class SlowOnManyRows(TracedTree):
    """A tree that waits only where it gets at least `many` rows: early rounds of halving cost nothing."""

    def __init__(
        self, max_depth: int = 3, log: str | None = None, pause: float = 0.0, random_state: int = 0, many: int = 0
    ) -> None:
        super().__init__(max_depth, log, pause, random_state)
        self.many = many

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Self:
        if len(X) < self.many:
            return DecisionTreeClassifier.fit(self, X, y, sample_weight, check_input)
        return super().fit(X, y, sample_weight, check_input)


class BusyTree(TracedTree):
    """Takes its time in many small steps, and writes a file named `ended` when it stops, whatever the reason."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Self:
        until = time.monotonic() + self.pause
        if self.log is not None:
            (Path(self.log) / f"{self.max_depth}-{uuid.uuid4().hex}").touch()
        try:
            while time.monotonic() < until:
                time.sleep(0.01)
        finally:
            if self.log is not None:
                (Path(self.log) / f"ended-{uuid.uuid4().hex}").touch()
        return DecisionTreeClassifier.fit(self, X, y, sample_weight, check_input)


class FussyTree(DecisionTreeClassifier):
    """Fails to fit at some depths."""

    def __init__(self, max_depth: int = 3, bad_depths: tuple[int, ...] = (), random_state: int = 0) -> None:
        super().__init__(max_depth=max_depth, random_state=random_state)
        self.bad_depths = bad_depths

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Self:
        if self.max_depth in self.bad_depths:
            raise FloatingPointError(f"no tree of depth {self.max_depth} today")
        return super().fit(X, y, sample_weight, check_input)


def fits_in(log: Path) -> list[tuple[str, str, str]]:
    """Depth, rows and process of every fit that wrote to a directory."""
    return [tuple(path.name.split("-")[:3]) for path in log.iterdir()]  # type: ignore[misc]


def picky_score(estimator: Any, X: Any, y: Any) -> float:
    """A scorer that fails for the fold with the largest first feature of the tests' rows, 1.82."""
    if len(X) == 100 and X[:, 0].max() > 1.8:
        raise ArithmeticError("this fold has no score")
    return float(estimator.score(X, y))

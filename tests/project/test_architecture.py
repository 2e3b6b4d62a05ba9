"""The walks of docs/architecture.md, held against the calls that a program really makes."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from dmlgbm import DMLGBMClassifier, DMLMLPClassifier, GridSearchCV

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEP = re.compile(r"^\d+\. (\*\*.+?:\*\* )?`([\w/]+\.py)` `(\w+)`", re.MULTILINE)

ROOMS = ("gbdt", "collectives", "dask_backend", "spark_backend", "sklearn_api", "neural", "tuning", "dmlgbm")

Hop = tuple[str, str]  # file, function

X = np.random.default_rng(0).random((300, 4))
Y = (X[:, 0] > 0.5).astype(int)


def walk(title: str) -> list[list[Hop]]:
    """The hops of a section, one list for each process or thread that takes part."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    chains: list[list[Hop]] = [[]]
    for begins, file, function in STEP.findall(section):
        if begins:
            chains.append([])
        chains[-1].append((file, function))
    return chains


@cache
def place_of(file: str) -> str | None:
    """The file's path in the checkout; None for the files of others."""
    path = os.path.realpath(file)
    place = os.path.relpath(path, ROOT)
    return place if place.partition(os.sep)[0] in ROOMS else None


class Trace:
    """Every chain of our functions that called one another."""

    def __init__(self) -> None:
        self.chains: set[tuple[Hop, ...]] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and place_of(frame.f_code.co_filename) is not None:
            self.chains.add(tuple(self._callers(frame))[::-1])

    @staticmethod
    def _callers(frame: FrameType | None) -> Iterator[Hop]:
        while frame is not None:
            place = place_of(frame.f_code.co_filename)
            if place is not None:
                yield place, frame.f_code.co_name
            frame = frame.f_back

    def passes(self, hops: list[Hop]) -> bool:
        """Whether one chain of calls went through these hops in this order."""
        return any(_in_order(hops, chain) for chain in self.chains)


def _in_order(hops: list[Hop], chain: tuple[Hop, ...]) -> bool:
    left = iter(chain)
    return all(hop in left for hop in hops)


@contextmanager
def traced() -> Iterator[Trace]:
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def fit_here() -> None:
    DMLGBMClassifier(n_estimators=2).fit(X, Y)


def fit_on_dask() -> None:
    from dask import array
    from distributed import Client, LocalCluster

    workers = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**workers) as cluster, Client(cluster):
        DMLGBMClassifier(n_estimators=2, tree_learner="data").fit(
            array.from_array(X, chunks=(100, 4)), array.from_array(Y, chunks=100)
        )


def predict() -> None:
    DMLGBMClassifier(n_estimators=2).fit(X, Y).predict(X)


def search() -> None:
    GridSearchCV(DMLGBMClassifier(n_estimators=2), {"num_leaves": [3, 4]}, n_jobs=1, cv=2).fit(X, Y)


def neural_fit() -> None:
    DMLMLPClassifier((4,), max_epochs=1, n_ranks=2, backend="threads").fit(X, Y)


WALKS: dict[str, Callable[[], None]] = {
    "`fit(X, y)`": fit_here,
    "`fit(dask_df)`": fit_on_dask,
    "`predict(X)`": predict,
    "`GridSearchCV.fit(X, y)`": search,
    "A neural fit with all-reduce": neural_fit,
}


@pytest.mark.processes
@pytest.mark.parametrize("title", WALKS)
def test_walk_is_what_is_called(title: str) -> None:
    chains = walk(title)
    assert sum(map(len, chains)) >= 4, "the section has no steps"
    with traced() as trace:
        WALKS[title]()
    untrue = [chain for chain in chains if not trace.passes(chain)]
    assert not untrue


@pytest.mark.processes
def test_a_fit_on_dask_passes_at_most_eight_files_on_its_way_to_the_kernels() -> None:
    with traced() as trace:
        fit_on_dask()
    chains = walk("`fit(dask_df)`")
    passed = dict.fromkeys(file for chain in chains for file in files_up_to(trace, chain))
    ours = [file for file in passed if not file.startswith("collectives/")]
    assert ours[0] == "sklearn_api/classifier.py"
    assert len(ours) - 1 <= 8, ours


def files_up_to(trace: Trace, hops: list[Hop]) -> list[str]:
    """All files of the chain of calls that ends with the last hop."""
    chains = [chain for chain in trace.chains if chain[-1] == hops[-1] and _in_order(hops, chain)]
    return [file for file, _ in min(chains, key=len)]


def test_every_file_of_the_page_exists() -> None:
    named = set(re.findall(r"`([\w/]+(?:\.py)?)`", PAGE))
    missing = [name for name in named if "/" in name and not (ROOT / name).exists()]
    assert not missing

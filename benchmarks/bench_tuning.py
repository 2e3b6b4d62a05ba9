"""Searches: ours beside scikit-learn with joblib's backends, dask-ml and joblib-spark, on two workers of this machine.

Every figure comes from a process of its own: it starts the workers, runs a small search so that everything is loaded,
and then measures one search. Systems take turns and the fastest turn counts. Memory is the highest sum over the
process and all its children; bytes are what went over the loopback device, and, for our local workers, what was
placed and sent.

    python -m benchmarks.bench_tuning --cases grid halving --output results.jsonl
    python -m benchmarks.bench_tuning --table results.jsonl --page docs/tuning.md
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.generated import generate_rows
from benchmarks.marked_section import markdown_table, write_section

PAGE, SECTION = Path("docs/tuning.md"), "tuning"
N_WORKERS = 2
N_FOLDS = 5


@dataclass(frozen=True)
class Case:
    """An estimator and the candidates to search through."""

    n_rows: int
    estimator: Callable[[], Any]
    search: str
    space: dict[str, Any]
    options: dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One search of one system."""

    case: str
    system: str
    seconds: float
    best_score: float
    trees_grown: int | None
    bytes_moved: int
    peak_bytes: int


def _boosted() -> Any:
    from dmlgbm import DMLGBMClassifier

    return DMLGBMClassifier(n_jobs=1)


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=30, random_state=0)


def _lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=60, n_jobs=1, verbose=-1)


def _halving(resources: dict[str, Any]) -> Case:
    """200 candidates that compete for trees; what is not said here is scikit-learn's default."""
    space = {
        "num_leaves": list(range(4, 32)),
        "learning_rate": [0.02 * k for k in range(1, 16)],
        "min_child_samples": list(range(5, 60, 5)),
    }
    options = {"n_candidates": 200, "resource": "n_estimators", "cv": N_FOLDS, "random_state": 0, "refit": False}
    return Case(2_000, _boosted, "HalvingRandomSearchCV", space, options | resources)


CASES = {
    "grid": Case(
        4_000,
        _boosted,
        "GridSearchCV",
        {"n_estimators": [20, 40, 60, 80, 100, 120], "num_leaves": [7, 15, 31], "learning_rate": [0.05, 0.1]},
        {"cv": N_FOLDS, "refit": False},
    ),
    "halving": _halving({"min_resources": 4, "max_resources": 324}),
    "halving, factor 2, no training scores": _halving(
        {"factor": 2, "min_resources": 2, "max_resources": 256, "return_train_score": False}
    ),
    "forest": Case(
        4_000,
        _forest,
        "GridSearchCV",
        {"max_depth": [4, 8, 12], "max_features": [3, 6], "min_samples_leaf": [1, 10]},
        {"cv": N_FOLDS, "refit": False},
    ),
    "lightgbm": Case(
        4_000,
        _lightgbm,
        "GridSearchCV",
        {"num_leaves": [7, 15, 31], "learning_rate": [0.05, 0.2], "min_child_samples": [5, 20]},
        {"cv": N_FOLDS, "refit": False},
    ),
}


def _ours(case: Case, **where: Any) -> Any:
    import dmlgbm

    return getattr(dmlgbm, case.search)(case.estimator(), case.space, **case.options, **where)


def _scikit_learn(case: Case) -> Any:
    from sklearn import model_selection
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401

    return getattr(model_selection, case.search)(case.estimator(), case.space, **case.options, n_jobs=N_WORKERS)


@contextlib.contextmanager
def ours_local(case: Case) -> Iterator[Any]:
    yield _ours(case, n_jobs=N_WORKERS, backend="local")


@contextlib.contextmanager
def ours_local_without_sharing(case: Case) -> Iterator[Any]:
    yield _ours(case, n_jobs=N_WORKERS, backend="local", share_work=False)


@contextlib.contextmanager
def ours_dask(case: Case) -> Iterator[Any]:
    with _dask() as client:
        yield _ours(case, backend=client)


@contextlib.contextmanager
def loky(case: Case) -> Iterator[Any]:
    yield _scikit_learn(case)


@contextlib.contextmanager
def joblib_dask(case: Case) -> Iterator[Any]:
    import joblib

    with _dask(), joblib.parallel_config("dask"):
        yield _scikit_learn(case)


@contextlib.contextmanager
def dask_ml(case: Case) -> Iterator[Any]:
    from dask_ml.model_selection import GridSearchCV

    with _dask() as client:
        yield GridSearchCV(case.estimator(), case.space, **case.options, scheduler=client)


@contextlib.contextmanager
def joblib_spark(case: Case) -> Iterator[Any]:
    import joblib
    from joblibspark import register_spark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master(f"local[{N_WORKERS}]").config("spark.ui.enabled", "false").getOrCreate()
    register_spark()
    try:
        with joblib.parallel_config("spark", n_jobs=N_WORKERS):
            yield _scikit_learn(case)
    finally:
        session.stop()


@contextlib.contextmanager
def _dask() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        yield client


SYSTEMS: dict[str, Callable[[Case], contextlib.AbstractContextManager[Any]]] = {
    "ours, local": ours_local,
    "ours, local, nothing shared": ours_local_without_sharing,
    "scikit-learn, joblib loky": loky,
    "ours, Dask": ours_dask,
    "scikit-learn, joblib Dask": joblib_dask,
    "dask-ml": dask_ml,
    "scikit-learn, joblib-spark": joblib_spark,
}


def measure(case_name: str, system: str) -> Figure:
    """Run one search in this process."""
    case = CASES[case_name]
    X, y = generate_rows(case.n_rows, 20, seed=7)
    warnings.simplefilter("ignore")
    with SYSTEMS[system](case) as search:
        _warm_up(search, X, y)
        before = _loopback_bytes()
        with _HighestMemory() as memory:
            started = time.perf_counter()
            search.fit(X, y)
            seconds = time.perf_counter() - started
        moved = _loopback_bytes() - before
    report = getattr(search, "search_report_", None)
    if report is not None and system.startswith("ours, local"):
        moved = report.bytes_placed + report.bytes_of_units
    score = float(max(score for score in search.cv_results_["mean_test_score"] if score == score))
    return Figure(case_name, system, seconds, score, _trees_grown(search, case), moved, memory.highest)


def _warm_up(search: Any, X: Any, y: Any) -> None:
    """Start the workers and load everything, with two candidates on a few rows."""
    import dmlgbm

    space = search.param_grid if hasattr(search, "param_grid") else search.param_distributions
    few = {name: values[: 2 if name in ("num_leaves", "max_depth") else 1] for name, values in space.items()}
    small: dict[str, Any] = {"cv": 2, "refit": False}
    if isinstance(search, dmlgbm.GridSearchCV | dmlgbm.HalvingRandomSearchCV):
        own = {"backend": search.backend, "n_jobs": search.n_jobs, "share_work": search.share_work}
        dmlgbm.GridSearchCV(search.estimator, few, **small, **own).fit(X[:400], y[:400])
    elif type(search).__module__.startswith("dask_ml"):
        type(search)(search.estimator, few, **small, scheduler=search.scheduler).fit(X[:400], y[:400])
    else:
        from sklearn.model_selection import GridSearchCV

        GridSearchCV(search.estimator, few, **small, n_jobs=N_WORKERS).fit(X[:400], y[:400])


def _trees_grown(search: Any, case: Case) -> int | None:
    """Trees that all fits of our estimators grew: what candidates ask for, unless a report knows better."""
    if case.estimator is not _boosted:
        return None
    report = getattr(search, "search_report_", None)
    if report is not None and "trees_grown" in report.counters:
        return int(report.counters["trees_grown"])
    return sum(int(candidate["n_estimators"]) for candidate in search.cv_results_["params"]) * N_FOLDS


class _HighestMemory:
    """The highest resident memory of this process and its children together, looked at every 50 ms."""

    def __init__(self) -> None:
        self.highest = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _HighestMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        import psutil

        this = psutil.Process()
        while not self._done.wait(0.05):
            total = 0
            for process in (this, *this.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
            self.highest = max(self.highest, total)


def _loopback_bytes() -> int:
    for line in Path("/proc/net/dev").read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split()[1])
    return 0


def table(figures: list[Figure]) -> str:
    """The figures as a Markdown table, the fastest turn of each system, relative to scikit-learn with loky."""
    best: dict[tuple[str, str], Figure] = {}
    for figure in figures:
        key = (figure.case, figure.system)
        if key not in best or figure.seconds < best[key].seconds:
            best[key] = figure
    rows = []
    for (case, system), figure in sorted(
        best.items(), key=lambda each: (list(CASES).index(each[0][0]), each[1].seconds)
    ):
        base = best.get((case, "scikit-learn, joblib loky"))
        ratio = "" if base is None else f"{figure.seconds / base.seconds:.2f}"
        # loky's pipes and mapped files do not go over the loopback device.
        moved = f"{figure.bytes_moved / 1e6:.1f}" if figure.bytes_moved else ""
        trees = "" if figure.trees_grown is None else f"{figure.trees_grown:,}"
        numbers = (f"{figure.seconds:.2f}", ratio, f"{figure.best_score:.5f}", trees, moved)
        rows.append((f"{case}: {system}", *numbers, f"{figure.peak_bytes / 1e6:.0f}"))
    header = ("search: system", "seconds", "of loky", "best score", "trees grown", "MB moved", "MB at most")
    return markdown_table(header, rows)


def _systems_of(case: str) -> list[str]:
    left_out = {"dask-ml"} if CASES[case].search != "GridSearchCV" else set()
    if CASES[case].estimator is not _boosted:
        left_out.add("ours, local, nothing shared")
    return [name for name in SYSTEMS if name not in left_out]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=None)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--output", type=Path, help="a file of JSON lines to add figures to")
    parser.add_argument("--table", type=Path, help="only print the table of a file of figures")
    parser.add_argument("--page", type=Path, help=f"with --table, the page to write the table to, such as {PAGE}")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "SYSTEM"), help="measure in this process and print JSON")
    options = parser.parse_args()
    if options.table is not None:
        lines = options.table.read_text(encoding="utf-8").splitlines()
        made = table([Figure(**json.loads(line)) for line in lines])
        print(made)
        if options.page is not None:
            write_section(options.page, SECTION, made)
        return
    if options.one is not None:
        print(json.dumps(asdict(measure(*options.one))))
        return
    figures = []
    for _ in range(options.repeat):
        for case in options.cases:
            for system in options.systems or _systems_of(case):
                line = _in_a_process_of_its_own(case, system)
                figures.append(Figure(**json.loads(line)))
                print(line, flush=True)
                if options.output is not None:
                    with options.output.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")
    print(table(figures))


def _in_a_process_of_its_own(case: str, system: str) -> str:
    command = [sys.executable, "-m", "benchmarks.bench_tuning", "--one", case, system]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return finished.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()

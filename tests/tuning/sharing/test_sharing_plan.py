"""Plans that share work: every call once, stages of a run together, every worker busy; and what workers keep."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from dmlgbm.sklearn_api import DMLGBMClassifier
from dmlgbm.tuning.calls import FitCall, SearchData, SharedArguments
from dmlgbm.tuning.plan import WorkUnit, plan_singly, planner_for
from dmlgbm.tuning.sharing.hooks import content_key
from dmlgbm.tuning.sharing.limited_cache import LimitedCache
from dmlgbm.tuning.sharing.planner import plan_sharing
from dmlgbm.tuning.sharing.prefixes import prefix_keys
from dmlgbm.tuning.sharing.shared_fit import run_sharing, run_sharing_and_keep


def data_for(estimator: Any) -> SearchData:
    return SearchData(SharedArguments(print, estimator, None, None, {"fit_params": {}}), {})


def calls_for(grid: dict[str, list[Any]], n_folds: int = 5) -> list[FitCall]:
    candidates = list(ParameterGrid(grid))
    return [
        FitCall(candidate * n_folds + fold, parameters, f"fold {fold}", candidate, fold)
        for candidate, parameters in enumerate(candidates)
        for fold in range(n_folds)
    ]


def planned(estimator: Any, grid: dict[str, list[Any]], n_slots: int = 2) -> list[WorkUnit]:
    calls = calls_for(grid)
    units = plan_sharing(calls, data_for(estimator), n_slots)
    assert sorted(call.number for unit in units for call in unit.calls) == [call.number for call in calls]
    return units


def stages(unit: WorkUnit, name: str) -> list[int]:
    return [call.parameters[name] for call in unit.calls if call.parameters is not None]


@pytest.mark.parametrize("name", ["n_estimators", "max_iter"])
def test_the_axis_of_lengths_becomes_stages_of_one_run(name: str) -> None:
    units = planned(DMLGBMClassifier(), {name: [100, 50, 200], "num_leaves": [7, 15], "max_bin": [63, 255]})
    assert len(units) == 4 * 5
    for unit in units:
        assert stages(unit, name) == [50, 100, 200]
        assert len({call.split for call in unit.calls}) == 1


def test_a_pipeline_collapses_the_axis_of_its_last_step() -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("model", DMLGBMClassifier())])
    units = planned(pipeline, {"model__n_estimators": [20, 10], "scale__with_mean": [True, False]})
    assert [stages(unit, "model__n_estimators") for unit in units] == [[10, 20]] * 10


def test_candidates_that_cannot_share_runs_are_units_of_their_own() -> None:
    for estimator in (DMLGBMClassifier(early_stopping=True), DMLGBMClassifier(random_state=np.random.RandomState(0))):
        assert all(len(unit.calls) == 1 for unit in planned(estimator, {"n_estimators": [5, 10]}))
    wrong = planned(DMLGBMClassifier(), {"n_estimators": [5, 10], "learning_rate": [-1.0, 0.1]})
    assert Counter(len(unit.calls) for unit in wrong) == {1: 10, 2: 5}


def test_estimators_without_hooks_get_the_plain_plan() -> None:
    assert planner_for(data_for(LogisticRegression()), share_work=True) is plan_singly
    assert planner_for(data_for(DMLGBMClassifier()), share_work=False) is plan_singly
    assert planner_for(data_for(DMLGBMClassifier()), share_work=True) is plan_sharing


def test_callbacks_of_scikit_learn_see_every_fit() -> None:
    calls = [
        FitCall(number, {"n_estimators": 5 * number + 5}, "fold", number, 0, {"callback_ctx": object()})
        for number in range(3)
    ]
    assert plan_sharing(calls, data_for(DMLGBMClassifier()), 2) == plan_singly(calls, data_for(DMLGBMClassifier()), 2)


@pytest.mark.parametrize("n_slots", [1, 2, 3, 4, 8])
def test_units_of_equal_affinity_fill_all_workers(n_slots: int) -> None:
    grid = {"n_estimators": [50, 100], "num_leaves": [7, 15, 31], "learning_rate": [0.03, 0.05, 0.1, 0.2]}
    units = planned(DMLGBMClassifier(), grid, n_slots)
    homes = Counter(unit.affinity for unit in units)
    assert len(homes) >= n_slots
    # A worker takes whole groups while there are some; none is so large that the others wait for it.
    assert max(homes.values()) <= len(units) / min(n_slots, 5) + 1
    if n_slots == 2:
        assert len(homes) == 4 + 2


def test_a_run_keeps_its_affinity_and_is_kept_while_rounds_give_it_more() -> None:
    rounds = [
        planned(DMLGBMClassifier(), {"n_estimators": [n], "num_leaves": leaves})
        for n, leaves in ((5, list(range(4, 16))), (15, [4, 9, 12]), (45, [9]))
    ]
    first = {(u.calls[0].split, u.calls[0].parameters["num_leaves"]): u.affinity for u in rounds[0]}
    for later in rounds:
        for unit in later:
            assert unit.runner is run_sharing_and_keep
            assert first[unit.calls[0].split, unit.calls[0].parameters["num_leaves"]] == unit.affinity
    for nobody_returns in ({"n_estimators": [5, 10]}, {"num_leaves": [5, 10]}):
        assert all(unit.runner is run_sharing for unit in planned(DMLGBMClassifier(), nobody_returns))


def test_names_of_pipeline_prefixes() -> None:
    def keys(**parameters: Any) -> list[str | None]:
        steps = [("scale", StandardScaler()), ("turn", PCA(2, random_state=0)), ("model", LogisticRegression())]
        return prefix_keys(Pipeline(steps).set_params(**parameters))

    plain = keys()
    assert None not in plain
    assert len(set(plain)) == 2
    assert keys(model__C=3.0) == plain
    assert keys(turn__n_components=3)[0] == plain[0]
    assert keys(turn__n_components=3)[1] != plain[1]
    assert keys(scale="passthrough") != plain[1:]
    # In doubt nothing is shared: neither the step nor what is made of its output.
    for in_doubt in ({"turn__random_state": None}, {"turn__random_state": np.random.RandomState(0)}):
        assert keys(**in_doubt) == [plain[0], None]
    for in_doubt in ({"scale__copy": False}, {"memory": "cache"}, {"verbose": True}):
        assert keys(**in_doubt) == [None, None]


def test_content_keys_tell_values_apart() -> None:
    assert content_key([("a", 1.0)]) == content_key([("a", 1.0)])
    assert content_key([("a", 1.0)]) != content_key([("a", np.float32(1.0))])
    assert content_key(threading.Lock()) is None


def test_a_cache_keeps_what_was_used_last_within_its_limit() -> None:
    cache = LimitedCache(100)
    for key in "abc":
        cache.put(key, key, 40)
    assert cache.n_bytes == 80
    assert cache.take("a") is None
    assert cache.get_or_make("b", lambda: ("new", 1)) == ("b", False)
    cache.put("d", "d", 40)
    assert cache.get_or_make("c", lambda: ("made again", 500)) == ("made again", True)
    assert cache.n_bytes == 500, "the newest is kept whatever its size, alone"
    assert cache.take("c") == "made again"
    assert cache.n_bytes == 0


def test_a_value_that_many_threads_want_is_made_once_and_after_errors_again() -> None:
    cache, made = LimitedCache(100), []
    barrier = threading.Barrier(4)

    def make() -> tuple[str, int]:
        made.append(threading.get_ident())
        if len(made) == 1:
            raise MemoryError
        return "value", 1

    def want(_: int) -> Any:
        barrier.wait(30)
        try:
            return cache.get_or_make("key", make)[0]
        except MemoryError:
            return "error"

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(want, range(4))) == ["error", "value", "value", "value"]
    assert len(made) == 2

"""Each fold of `cv` is the model of `train` on its rows, and the result is the mean of what they measure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

import dmlgbm
from dmlgbm import Dataset

RANDOM = np.random.default_rng(13)
X = RANDOM.normal(size=(241, 3))
SIGNAL = X[:, 0] - X[:, 1] * X[:, 2] + 0.3 * RANDOM.normal(size=241)
THREE = np.digitize(SIGNAL, [-0.7, 0.9])
SIZES = [30, 20, 41, 50, 60, 40]
WEIGHT = RANDOM.uniform(0.5, 2.0, 241)
WEIGHT[[3, 50]] = 0.0
SMALL = {"num_leaves": 7, "min_child_samples": 5}


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(
    ("params", "label", "more"),
    [
        ({"objective": "l2", "metric": ["l1", "l2"]}, SIGNAL, {}),
        ({"objective": "l1"}, SIGNAL, {"weight": WEIGHT, "init_score": X[:, 0]}),
        ({"objective": "multiclass", "num_class": 3, "class_weight": "balanced"}, THREE, {}),
        ({"objective": "lambdarank", "eval_at": [3]}, THREE, {"group": SIZES}),
    ],
)
def test_folds_are_trained_as_train_does_and_the_result_holds_their_means(
    params: dict[str, Any], label: Any, more: dict[str, Any], n_threads: int
) -> None:
    queries = np.repeat(np.arange(6), SIZES)
    folds = [(np.flatnonzero(queries % 3 != k), np.flatnonzero(queries % 3 == k)) for k in range(3)]
    params = SMALL | params | {"num_threads": n_threads}
    data = Dataset(X, label, **more)
    found = dmlgbm.cv(params, data, 4, folds, eval_train_metric=True, return_cvbooster=True)
    assert data.has_table
    histories = []
    for (rows, others), booster in zip(folds, found["cvbooster"].boosters, strict=True):
        pair = []
        for part in (rows, others):
            own = {name: np.asarray(values)[part] for name, values in more.items() if name != "group"}
            if "group" in more:
                own["qid"] = queries[part]
            pair.append(Dataset(X[part], label[part], **own))
        record: dict[str, dict[str, list[float]]] = {}
        kept = dmlgbm.record_evaluation(record)
        expected = dmlgbm.train(params, pair[0], 4, pair, ["train", "valid"], callbacks=[kept])
        assert booster.to_bytes() == expected.to_bytes()
        histories.append(record)
    del found["cvbooster"]
    assert len(found) == 4 * len(histories[0]["train"])
    for name, values in found.items():
        of_set, metric = name.rsplit("-", 1)[0].split(" ")
        of_folds = np.array([history[of_set][metric] for history in histories])
        assert values == (of_folds.mean(axis=0) if name.endswith("-mean") else of_folds.std(axis=0)).tolist()


def test_early_stopping_watches_the_mean_and_cuts_the_result() -> None:
    data = Dataset(X, SIGNAL)
    params = SMALL | {"learning_rate": 0.8, "metric": "l2"}
    whole = dmlgbm.cv(params, data, 60)["valid l2-mean"]
    found = dmlgbm.cv(
        params,
        data,
        60,
        callbacks=[dmlgbm.early_stopping(4, verbose=False)],
        eval_train_metric=True,
        return_cvbooster=True,
    )
    stopped = next(k for k in range(60) if k - int(np.argmin(whole[: k + 1])) >= 4)
    best = int(np.argmin(whole[: stopped + 1])) + 1
    assert found["valid l2-mean"] == whole[:best]
    assert len(found["train l2-stdv"]) == found["cvbooster"].best_iteration == best
    assert {each.current_iteration() for each in found["cvbooster"].boosters} == {stopped + 1}
    predictions = found["cvbooster"].predict(X)
    np.testing.assert_array_equal(predictions[2], found["cvbooster"].boosters[2].predict(X, num_iteration=best))
    assert dmlgbm.cv(params | {"early_stopping_rounds": 4}, data, 60)["valid l2-mean"] == whole[:best]


@pytest.mark.parametrize(
    ("params", "more", "arguments", "splitter"),
    [
        ({}, {}, {"nfold": 4, "seed": 7}, KFold(4, shuffle=True, random_state=7)),
        ({}, {}, {"shuffle": False}, KFold(5)),
        ({"objective": "binary"}, {}, {"seed": 3}, StratifiedKFold(5, shuffle=True, random_state=3)),
        ({"objective": "binary"}, {}, {"stratified": False}, KFold(5, shuffle=True, random_state=0)),
        ({"objective": "lambdarank"}, {"group": SIZES}, {"folds": GroupKFold(3)}, GroupKFold(3)),
    ],
)
def test_folds_are_those_of_scikit_learns_splitters(
    params: dict[str, Any], more: dict[str, Any], arguments: dict[str, Any], splitter: Any
) -> None:
    label = (THREE > 1).astype(float)
    pairs = list(splitter.split(X, label, np.repeat(np.arange(6), SIZES)))
    data = Dataset(X, label, **more)
    assert dmlgbm.cv(SMALL | params, data, 2, **arguments) == dmlgbm.cv(SMALL | params, data, 2, pairs)


def test_queries_stay_whole_and_all_rows_are_measured_once() -> None:
    seen: list[Any] = []

    def measured(prediction: Any, data: Any) -> tuple[str, float, bool]:
        seen.append(data.get_group().tolist())
        return "rows", data.num_data(), True

    data = Dataset(X, THREE, group=SIZES)
    found = dmlgbm.cv(SMALL | {"objective": "lambdarank", "metric": "None"}, data, 1, nfold=3, feval=measured)
    assert sorted(size for sizes in seen[1:] for size in sizes) == sorted(SIZES)
    assert found["valid rows-mean"] == [241 / 3]


def test_metrics_take_the_place_of_those_in_params() -> None:
    found = dmlgbm.cv(SMALL | {"metric": "l1"}, Dataset(X, SIGNAL), 1, metrics=["rmse", "l2"])
    assert list(found) == ["valid rmse-mean", "valid rmse-stdv", "valid l2-mean", "valid l2-stdv"]


def test_rows_without_weight_may_be_in_folds_and_count_nothing() -> None:
    data = Dataset(X, SIGNAL, weight=WEIGHT)
    kept = np.flatnonzero(WEIGHT)
    folds = list(KFold(3).split(X))
    others = [tuple(np.flatnonzero(np.isin(kept, part)) for part in pair) for pair in folds]
    assert dmlgbm.cv(SMALL, data, 2, folds) == dmlgbm.cv(
        SMALL, Dataset(X[kept], SIGNAL[kept], weight=WEIGHT[kept]), 2, others
    )


def test_error_of_a_users_objective_names_the_row_as_it_was_passed() -> None:
    def broken(scores: Any, data: Any) -> Any:
        gradient = scores - data.get_label()
        gradient[data.get_label() == 77] = np.nan
        return gradient, np.ones(len(scores))

    label = SIGNAL.copy()
    label[200] = 77
    with pytest.raises(ValueError, match=r"gradient .*row 200"):
        dmlgbm.cv(SMALL | {"objective": broken, "metric": "l2"}, Dataset(X, label), 2, shuffle=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"folds": 3}, "folds must be a splitter or a list of pairs"),
        ({"folds": [([0, 1], [1, 2])]}, "both learns from and measures on"),
        ({"folds": [(range(40), [])]}, "a fold without rows"),
        ({"folds": [([0, 0, 1], [2])]}, "lists a row twice"),
        ({"folds": KFold(7), "params": {"objective": "lambdarank"}}, "cuts a query in two"),
        ({"callbacks": [dmlgbm.checkpoint("model", every=1)]}, "there is one for each fold"),
        ({"params": {"early_stopping_sets": "train"}}, "early_stopping_sets has no place in cv"),
        ({"train_set": X}, "train_set must be a Dataset"),
    ],
)
def test_bad_arguments_of_cv_get_one_clear_sentence(arguments: dict[str, Any], message: str) -> None:
    group = SIZES if "params" in arguments else None
    given = {"params": {}, "train_set": Dataset(X, THREE, group=group), "num_boost_round": 1} | arguments
    with pytest.raises((TypeError, ValueError), match=message):
        dmlgbm.cv(**given)


def test_dataset_that_is_kept_as_bins_is_refused() -> None:
    data = Dataset(X, SIGNAL)
    dmlgbm.train(SMALL, data, 1)
    with pytest.raises(ValueError, match=r"each fold of cv cuts bins of its own: .* free_raw_data=False"):
        dmlgbm.cv(SMALL, data, 1)


@pytest.mark.parity
def test_result_has_the_keys_of_lightgbm_and_values_near_its() -> None:
    import lightgbm

    params = SMALL | {"objective": "regression", "metric": ["l2", "l1"]}
    folds = list(KFold(4).split(X))
    theirs = lightgbm.cv(
        params | {"verbose": -1, "min_data_in_bin": 1},
        lightgbm.Dataset(X, SIGNAL),
        10,
        folds=folds,
        eval_train_metric=True,
    )
    ours = dmlgbm.cv(params, Dataset(X, SIGNAL), 10, folds, eval_train_metric=True)
    assert theirs.keys() == ours.keys()
    np.testing.assert_allclose(ours["valid l2-mean"], theirs["valid l2-mean"], rtol=0.1)

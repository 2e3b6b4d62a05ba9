"""The estimators: parameters and aliases, every kind of target and input, early stopping, continued training, files."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.metrics import log_loss, mean_poisson_deviance, ndcg_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dmlgbm
from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, ModelFileError, load_model
from dmlgbm.gbdt.system.atomic_file import write_atomically
from dmlgbm.sklearn_api.parameters.documentation import PARAMETERS
from dmlgbm.sklearn_api.parameters.names import ALIASES_OF
from dmlgbm.sklearn_api.parameters.values import OBJECTIVE_ALIASES, n_threads_of
from dmlgbm.sklearn_api.rows.holdout import split_classes, split_groups, split_rows

ROOT = Path(__file__).resolve().parents[2]
N_ROWS, N_FEATURES, QUERY = 600, 4, 20
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
SIGNAL = X[:, 0] + np.abs(X[:, 1]) + 0.5 * RANDOM.normal(size=N_ROWS)
BINARY = (SIGNAL > 0.8).astype(np.int64)
THREE = np.digitize(SIGNAL, [0.2, 1.2])
COUNTS = RANDOM.poisson(np.exp(0.5 * SIGNAL))
GRADES = np.clip(np.round(SIGNAL), 0, 3).astype(np.int64)
GROUP = np.full(N_ROWS // QUERY, QUERY)
FRAME = pd.DataFrame(X, columns=list("abcd"))
TRAIN, TEST = slice(0, 400), slice(400, None)

FITTED: dict[str, Callable[..., Any]] = {
    "binary": lambda **p: DMLGBMClassifier(n_estimators=12, **p).fit(X, BINARY),
    "three classes": lambda **p: DMLGBMClassifier(n_estimators=12, **p).fit(X, THREE),
    "regression": lambda **p: DMLGBMRegressor(n_estimators=12, **p).fit(X, SIGNAL),
    "poisson": lambda **p: DMLGBMRegressor(n_estimators=12, objective="poisson", **p).fit(X, COUNTS),
    "ranking": lambda **p: DMLGBMRanker(n_estimators=12, **p).fit(X, GRADES, group=GROUP),
}
kinds = pytest.mark.parametrize("kind", list(FITTED))


def squared_error(y: Any, prediction: Any) -> tuple[Any, Any]:
    return prediction - y, np.ones_like(y)


def log_loss_objective(y: Any, score: Any) -> tuple[Any, Any]:
    probability = 1 / (1 + np.exp(-score))
    return probability - y, probability * (1 - probability)


# Parameters.


@pytest.mark.parametrize(
    ("alias", "parameter"), [(alias, name) for name, aliases in ALIASES_OF.items() for alias in aliases]
)
def test_alias_sets_the_parameter_it_stands_for(alias: str, parameter: str) -> None:
    estimators = [e for e in (DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker) if parameter in e().get_params()]
    assert estimators
    for estimator in estimators:
        value = object()
        assert estimator(**{alias: value}).get_params()[parameter] is value
        assert estimator().set_params(**{alias: value}).get_params()[parameter] is value
        assert alias not in estimator().get_params()


def test_alias_and_parameter_may_agree() -> None:
    assert DMLGBMRegressor(max_iter=7, n_estimators=7).n_estimators == 7


@pytest.mark.parametrize("kind", [DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker])
def test_clones_have_equal_parameters_of_their_own_and_what_was_asked_of_metadata(kind: Any) -> None:
    rates = [0.1, 0.2]
    model = kind(num_leaves=5, eval_metric=rates)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied.eval_metric is not rates
    plain = clone(model.set_params(eval_metric=None))
    assert type(plain) is kind
    assert plain.set_params(num_leaves=9).get_params() != model.get_params()
    assert model.num_leaves == 5
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True)
        assert clone(model).get_metadata_routing().fit.requests["sample_weight"] is True


def test_clone_of_an_estimator_made_with_aliases_is_equal() -> None:
    model = DMLGBMClassifier(max_iter=5, eta=0.3, seed=4)
    assert clone(model).get_params() == model.get_params()
    assert repr(model) == "DMLGBMClassifier(learning_rate=0.3, n_estimators=5, random_state=4)"


def test_subclass_may_have_parameters_of_its_own() -> None:
    class Shallow(DMLGBMRegressor):
        def __init__(self, *, depth: int = 2) -> None:
            super().__init__(max_depth=depth)
            self.depth = depth

    model = clone(Shallow(depth=3))
    assert model.get_params() == {"depth": 3}
    assert model.max_depth == 3


@pytest.mark.parametrize("kind", [DMLGBMClassifier, DMLGBMRegressor])
def test_subclass_may_pass_on_keyword_arguments(kind: Any, tmp_path: Path) -> None:
    class Passing(kind):  # type: ignore[misc]
        def __init__(self, *, extra: int = 1, **parameters: Any) -> None:
            super().__init__(**parameters)
            self.extra = extra

    model = clone(Passing(extra=2, max_iter=3)).set_params(num_leaves=7).fit(X, BINARY)
    assert model.get_params() == {**kind(n_estimators=3, num_leaves=7).get_params(), "extra": 2}
    plain = kind(n_estimators=3, num_leaves=7).fit(X, BINARY)
    assert model.booster_.to_bytes() == plain.booster_.to_bytes()
    model.save_model(tmp_path / "model")
    assert type(load_model(tmp_path / "model")) is kind
    assert load_model(tmp_path / "model").get_params() == plain.get_params()


def test_subclass_that_shows_few_parameters_trains_with_all_of_them(tmp_path: Path) -> None:
    class Shallow(DMLGBMRegressor):
        def __init__(self, *, depth: int = 2) -> None:
            super().__init__(max_depth=depth, n_estimators=3)
            self.depth = depth

    shallow, plain = Shallow().fit(X, SIGNAL), DMLGBMRegressor(max_depth=2, n_estimators=3).fit(X, SIGNAL)
    assert shallow.booster_.to_bytes() == plain.booster_.to_bytes()
    shallow.save_model(tmp_path / "model")
    assert load_model(tmp_path / "model").get_params() == plain.get_params()


@pytest.mark.parametrize("estimator", [DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker])
def test_every_argument_of_fit_is_described_where_it_is_installed(estimator: Any) -> None:
    described = estimator.fit.__doc__
    for name in list(inspect.signature(estimator.fit).parameters)[1:]:
        assert f"\n{name} : " in described
    assert ".md" not in described


@pytest.mark.parametrize("estimator", [DMLGBMClassifier, DMLGBMRegressor, DMLGBMRanker])
def test_every_parameter_and_alias_is_documented(estimator: type) -> None:
    page = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")
    for name, default in estimator().get_params().items():  # type: ignore[attr-defined]
        kind, description = PARAMETERS[name]
        aliases = ", ".join(f"`{alias}`" for alias in ALIASES_OF.get(name, ()))
        assert f"| `{name}` | `{default!r}` | {description} | {aliases} |".replace("  ", " ") in page
        assert f"{name} : {kind}, default={default!r}\n    {description}" in (estimator.__doc__ or "")


def test_every_objective_alias_is_documented() -> None:
    page = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")
    assert [alias for alias in OBJECTIVE_ALIASES if f"`{alias}`" not in page] == []


@pytest.mark.parametrize("alias", ["squared_error", "mse", "reg:squarederror"])
def test_objective_may_have_the_name_of_another_library(alias: str) -> None:
    named = DMLGBMRegressor(n_estimators=3, objective=alias).fit(X, SIGNAL)
    assert named.booster_.to_bytes() == DMLGBMRegressor(n_estimators=3).fit(X, SIGNAL).booster_.to_bytes()


def test_log_loss_is_the_objective_of_any_number_of_classes() -> None:
    for y in (BINARY, THREE):
        named = DMLGBMClassifier(n_estimators=2, loss="log_loss").fit(X, y)
        assert named.booster_.to_bytes() == DMLGBMClassifier(n_estimators=2).fit(X, y).booster_.to_bytes()


def test_n_jobs_counts_threads_from_the_end_when_negative() -> None:
    everything = n_threads_of(None)
    assert n_threads_of(-1) == everything
    assert n_threads_of(3) == n_threads_of(np.int64(3)) == 3
    assert n_threads_of(-everything - 5) == 1


def test_no_seed_is_seed_zero_and_generators_draw_one() -> None:
    def trained(random_state: Any) -> bytes:
        model = DMLGBMRegressor(n_estimators=3, subsample=0.5, subsample_freq=1, random_state=random_state)
        return model.fit(X, SIGNAL).booster_.to_bytes()

    assert trained(None) == trained(0)
    assert trained(1) != trained(0)
    assert trained(np.random.RandomState(5)) == trained(np.random.RandomState(5))
    assert trained(np.random.default_rng(5)) == trained(np.random.default_rng(5))
    generator = np.random.default_rng(5)
    assert trained(generator) != trained(generator)


# Targets and predictions.


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"])[BINARY],
        np.array(["no", "yes"])[BINARY].tolist(),
        np.array(["no", "yes"], dtype=object)[BINARY],
        pd.Series(np.array(["no", "yes"])[BINARY]),
        pd.Series(np.array(["no", "yes"])[BINARY]).astype("category"),
        BINARY.astype(bool),
        BINARY.astype(np.uint8),
        BINARY.astype(np.float64),
        2 * BINARY - 1,
        BINARY * 10**12,
        (200 * BINARY - 100).astype(np.int8),
        BINARY.astype(np.uint64) + 2**63,
        BINARY * 2.0**80,
        BINARY[:, None].ravel().tolist(),
    ],
)
def test_labels_of_any_kind_come_back(labels: Any) -> None:
    values = np.asarray(labels)
    model = DMLGBMClassifier(n_estimators=5).fit(X, labels)
    assert model.classes_.tolist() == np.unique(values).tolist()
    assert model.classes_.dtype == values.dtype
    prediction = model.predict(X)
    assert prediction.dtype == values.dtype
    assert (prediction == values).mean() > 0.8
    expected = DMLGBMClassifier(n_estimators=5).fit(X, BINARY)
    assert model.booster_.to_bytes() == expected.booster_.to_bytes()


@pytest.mark.parametrize("y", [BINARY, THREE])
def test_probabilities_add_up_to_one_and_their_largest_is_the_prediction(y: Any) -> None:
    model = DMLGBMClassifier(n_estimators=10).fit(X, y)
    probability = model.predict_proba(X)
    assert probability.shape == (N_ROWS, len(np.unique(y)))
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-14)
    assert (model.classes_[probability.argmax(axis=1)] == model.predict(X)).all()
    assert log_loss(y, probability) < 0.7 * log_loss(y, np.full_like(probability, 1 / probability.shape[1]))


@pytest.mark.parametrize(("y", "n_outputs"), [(BINARY, 1), (THREE, 3)])
def test_two_classes_have_one_raw_score_and_three_have_three(y: Any, n_outputs: int) -> None:
    model = DMLGBMClassifier(n_estimators=4).fit(X, y)
    raw = model.predict(X, raw_score=True)
    assert raw.shape == ((N_ROWS,) if n_outputs == 1 else (N_ROWS, n_outputs))
    assert model.booster_.n_outputs == n_outputs


def test_regression_objectives_fit_what_they_are_for() -> None:
    assert r2_score(SIGNAL, DMLGBMRegressor().fit(X, SIGNAL).predict(X)) > 0.8
    for alpha in (0.1, 0.9):
        quantile = DMLGBMRegressor(objective="quantile", alpha=alpha).fit(X, SIGNAL)
        assert abs((quantile.predict(X) > SIGNAL).mean() - alpha) < 0.08
    rate = DMLGBMRegressor(objective="poisson").fit(X, COUNTS).predict(X)
    assert (rate > 0).all()
    assert mean_poisson_deviance(COUNTS, rate) < mean_poisson_deviance(COUNTS, np.full(N_ROWS, COUNTS.mean()))


def test_poisson_raw_score_is_the_logarithm_of_the_rate() -> None:
    model = FITTED["poisson"]()
    np.testing.assert_allclose(np.exp(model.predict(X, raw_score=True)), model.predict(X), rtol=1e-12)


def test_ranker_orders_queries_and_takes_sizes_or_ids() -> None:
    by_size = DMLGBMRanker(n_estimators=30).fit(X, GRADES, group=GROUP)
    by_id = DMLGBMRanker(n_estimators=30).fit(X, GRADES, qid=np.repeat(np.arange(len(GROUP))[::-1], QUERY))
    assert by_size.booster_.to_bytes() == by_id.booster_.to_bytes()
    score = by_size.predict(X).reshape(-1, QUERY)
    assert ndcg_score(GRADES.reshape(-1, QUERY), score) > 0.95


@kinds
def test_last_stage_is_the_prediction_and_there_is_one_for_each_iteration(kind: str) -> None:
    model = FITTED[kind]()
    stages = list(model.staged_predict(X))
    assert len(stages) == model.n_iter_ == 12
    for n_iterations in (1, 5, 12):
        staged, direct = stages[n_iterations - 1], model.predict(X, num_iteration=n_iterations)
        if kind in ("binary", "three classes"):
            assert (staged == direct).all()
        else:
            np.testing.assert_allclose(staged, direct, rtol=1e-12, atol=1e-14)
    assert np.array_equal(model.predict(X, num_iteration=-1), model.predict(X))


def test_last_stage_of_probabilities_is_the_prediction() -> None:
    model = FITTED["three classes"]()
    *_, last = model.staged_predict_proba(X)
    np.testing.assert_allclose(last, model.predict_proba(X), rtol=1e-12)


@kinds
def test_rows_of_one_leaf_in_every_tree_have_one_prediction(kind: str) -> None:
    model = FITTED[kind]()
    leaves = model.apply(X)
    assert leaves.shape == (N_ROWS, 12 * model.booster_.n_outputs)
    _, rows, position = np.unique(leaves, axis=0, return_index=True, return_inverse=True)
    raw = model.predict(X, raw_score=True)
    assert np.array_equal(raw, raw[rows][position.ravel()])


def test_importance_is_by_splits_or_by_gain() -> None:
    model = FITTED["regression"]()
    splits = model.feature_importances_
    assert splits.sum() == sum(tree.n_nodes for tree in model.booster_.trees)
    gains = model.set_params(importance_type="gain").feature_importances_
    assert gains.argmax() in (0, 1)
    assert gains[:2].sum() > 5 * gains[2:].sum()


# Weights.


def test_class_weight_multiplies_sample_weight() -> None:
    weight = RANDOM.uniform(0.5, 2.0, N_ROWS)
    by_class = DMLGBMClassifier(n_estimators=5, class_weight={1: 3.0}).fit(X, BINARY, sample_weight=weight)
    by_row = DMLGBMClassifier(n_estimators=5).fit(X, BINARY, sample_weight=weight * np.where(BINARY, 3.0, 1.0))
    assert by_class.booster_.to_bytes() == by_row.booster_.to_bytes()


def test_balanced_classes_start_at_even_odds() -> None:
    rare = (SIGNAL > 2.0).astype(int)
    model = DMLGBMClassifier(n_estimators=1, class_weight="balanced", min_child_samples=N_ROWS).fit(X, rare)
    np.testing.assert_allclose(model.predict_proba(X), 0.5, rtol=1e-6)


def test_weight_of_one_number_is_a_weight_for_every_row() -> None:
    one = DMLGBMRegressor(n_estimators=2).fit(X, SIGNAL, sample_weight=2.0)
    each = DMLGBMRegressor(n_estimators=2).fit(X, SIGNAL, sample_weight=np.full(N_ROWS, 2.0))
    assert one.booster_.to_bytes() == each.booster_.to_bytes()


# Custom objectives and metrics.


def test_custom_objective_of_squared_error_gives_the_trees_of_the_built_in_one() -> None:
    centred = SIGNAL - SIGNAL.mean()
    custom = DMLGBMRegressor(objective=squared_error).fit(X, centred)
    assert r2_score(custom.predict(X), DMLGBMRegressor().fit(X, centred).predict(X)) > 0.99


def test_custom_objective_of_a_classifier_works_on_log_odds() -> None:
    model = DMLGBMClassifier(objective=log_loss_objective, eval_metric=["log_loss", "auc"])
    model.fit(X, BINARY, eval_set=(X, BINARY))
    probability = model.predict_proba(X)
    assert log_loss(BINARY, probability) == pytest.approx(model.evals_result_["valid_0"]["binary_logloss"][-1])
    assert model.score(X, BINARY) > 0.85


@pytest.mark.parametrize(("y", "shape"), [(BINARY, (N_ROWS,)), (THREE, (N_ROWS, 3))])
def test_custom_metric_sees_probabilities(y: Any, shape: tuple[int, ...]) -> None:
    seen = []

    def accuracy(y_true: Any, y_pred: Any) -> tuple[str, float, bool]:
        seen.append(y_pred.shape)
        predicted = y_pred > 0.5 if y_pred.ndim == 1 else y_pred.argmax(axis=1)
        return "accuracy", float((predicted == y_true).mean()), True

    model = DMLGBMClassifier(n_estimators=3, eval_metric=[accuracy, "log_loss"]).fit(X, y, eval_set=[(X, y)])
    assert set(seen) == {shape}
    assert model.evals_result_["valid_0"]["accuracy"][-1] == model.score(X, y)
    loss = "binary_logloss" if y is BINARY else "multi_logloss"
    assert model.evals_result_["valid_0"][loss][-1] == pytest.approx(log_loss(y, model.predict_proba(X)))


# Evaluation and early stopping.


def test_every_metric_of_every_set_is_recorded_under_its_name() -> None:
    model = DMLGBMRegressor(n_estimators=4, eval_metric=["rmse", "l1"])
    model.fit(X[TRAIN], SIGNAL[TRAIN], eval_set=[(X[TRAIN], SIGNAL[TRAIN]), (X[TEST], SIGNAL[TEST])])
    assert list(model.evals_result_) == ["valid_0", "valid_1"]
    assert all(list(metrics) == ["rmse", "l1"] for metrics in model.evals_result_.values())
    expected = np.sqrt(np.mean((model.predict(X[TEST]) - SIGNAL[TEST]) ** 2))
    assert model.evals_result_["valid_1"]["rmse"][-1] == pytest.approx(expected)
    assert model.best_iteration_ is None


def test_first_metric_stops_training_and_prediction_uses_the_best_iteration() -> None:
    model = DMLGBMRegressor(n_estimators=500, early_stopping_rounds=5, eval_metric=["l1", "l2"], first_metric_only=True)
    model.fit(
        X[TRAIN],
        SIGNAL[TRAIN],
        eval_set=[(X[TEST], SIGNAL[TEST]), (X[TRAIN], SIGNAL[TRAIN])],
        eval_names=["test", "train"],
    )
    history = model.evals_result_["test"]["l1"]
    assert model.best_iteration_ == int(np.argmin(history)) + 1
    assert model.n_iter_ == model.best_iteration_ + 5 < 500
    assert model.best_score_["test"]["l1"] == min(history)
    assert np.array_equal(model.predict(X), model.predict(X, num_iteration=model.best_iteration_))
    assert not np.array_equal(model.predict(X), model.predict(X, num_iteration=model.n_iter_))
    assert model.apply(X).shape[1] == model.best_iteration_


def test_evaluation_set_alone_does_not_stop_training() -> None:
    model = DMLGBMRegressor(n_estimators=60)
    model.fit(X[TRAIN], SIGNAL[TRAIN], eval_set=(X[TEST], SIGNAL[TEST]))
    assert model.n_iter_ == 60


def test_early_stopping_sets_rows_aside_by_the_seed() -> None:
    def trained(seed: int) -> DMLGBMClassifier:
        model = DMLGBMClassifier(n_estimators=300, early_stopping=True, validation_fraction=0.2, random_state=seed)
        return model.fit(X, THREE)

    model = trained(1)
    assert list(model.evals_result_) == ["validation"]
    assert model.best_iteration_ < 300
    assert model.booster_.to_bytes() == trained(1).booster_.to_bytes()
    assert model.booster_.to_bytes() != trained(2).booster_.to_bytes()


def test_early_stopping_of_a_ranker_sets_whole_queries_aside() -> None:
    model = DMLGBMRanker(n_estimators=100, early_stopping=True, eval_at=(5, 1)).fit(X, GRADES, group=GROUP)
    assert list(model.evals_result_["validation"]) == ["ndcg@5", "ndcg@1"]
    rows = split_groups(np.concatenate([[0], np.cumsum(GROUP)]), 0.1, seed=0)
    queries = np.unique(rows.validation // QUERY)
    assert len(queries) == 3
    assert rows.validation.tolist() == [query * QUERY + k for query in queries for k in range(QUERY)]


@pytest.mark.parametrize("seed", range(3))
def test_hold_out_is_exact_disjoint_and_takes_its_share_of_every_class(seed: int) -> None:
    rows = split_rows(1001, 0.1, seed)
    assert (len(rows.validation), len(rows.training)) == (101, 900)
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(1001))
    classes = np.repeat([0.0, 1.0, 2.0], [700, 299, 2])
    split = split_classes(classes, 0.1, seed)
    assert np.bincount(classes[split.validation].astype(int), minlength=3).tolist() == [70, 30, 0]
    assert len(set(split.training) | set(split.validation)) == 1001


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array, lambda x: pd.DataFrame(x).astype("Float64")])
def test_rows_set_aside_are_the_same_from_any_kind_of_table(make: Callable[[Any], Any]) -> None:
    sparse = np.where(X > 0.5, X, 0.0)
    expected = DMLGBMRegressor(n_estimators=20, early_stopping=True).fit(sparse, SIGNAL)
    model = DMLGBMRegressor(n_estimators=20, early_stopping=True).fit(make(sparse), SIGNAL)
    assert model.evals_result_ == expected.evals_result_


def test_callbacks_watch_and_stop(capsys: pytest.CaptureFixture[str]) -> None:
    record: dict[str, Any] = {}

    def stop_at_three(state: Any) -> None:
        if state.iteration == 3:
            state.stop("enough")

    model = DMLGBMRegressor(n_estimators=9, verbose=1)
    model.fit(X, SIGNAL, eval_set=(X, SIGNAL), callbacks=[dmlgbm.record_evaluation(record), stop_at_three])
    assert model.n_iter_ == 3
    assert record == model.evals_result_
    assert len(capsys.readouterr().err.strip().splitlines()) == 3


# Continued training.


@kinds
def test_init_model_and_warm_start_go_on_where_a_longer_fit_would_be(kind: str, tmp_path: Path) -> None:
    whole = FITTED[kind]()
    half = FITTED[kind]().set_params(n_estimators=6)
    arguments = {"group": GROUP} if kind == "ranking" else {}
    y = {"binary": BINARY, "three classes": THREE, "regression": SIGNAL, "poisson": COUNTS, "ranking": GRADES}[kind]
    half.fit(X, y, **arguments)
    half.save_model(tmp_path / "half.dml")
    for init_model in (half, half.booster_, tmp_path / "half.dml", str(tmp_path / "half.dml")):
        continued = clone(half).fit(X, y, init_model=init_model, **arguments)
        assert continued.n_iter_ == 12
        np.testing.assert_allclose(
            continued.predict(X, raw_score=True), whole.predict(X, raw_score=True), rtol=1e-6, atol=1e-8
        )
    warm = half.set_params(warm_start=True, n_estimators=12).fit(X, y, **arguments)
    assert warm.n_iter_ == 12
    assert warm.booster_.to_bytes() == continued.booster_.to_bytes()


def test_checkpoint_can_be_gone_on_from_but_is_no_estimator(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.dml"
    DMLGBMRegressor(n_estimators=4).fit(X, SIGNAL, callbacks=[dmlgbm.checkpoint(path, every=2)])
    assert DMLGBMRegressor(n_estimators=3).fit(X, SIGNAL, init_model=path).n_iter_ == 7
    with pytest.raises(ModelFileError, match=r"trees without an estimator: .*Booster\.load_model.*init_model"):
        load_model(path)


def test_model_stopped_early_is_gone_on_from_at_its_best_iteration() -> None:
    model = DMLGBMRegressor(n_estimators=300, early_stopping=True).fit(X, SIGNAL)
    assert model.best_iteration_ < model.n_iter_
    continued = DMLGBMRegressor(n_estimators=1).fit(X, SIGNAL, init_model=model)
    assert continued.n_iter_ == model.best_iteration_ + 1


def test_init_score_is_where_training_starts_and_no_part_of_predictions() -> None:
    start = 2.0 * X[:, 0].astype(np.float64)
    model = DMLGBMRegressor().fit(X, SIGNAL + 2.0 * X[:, 0], init_score=start)
    assert r2_score(SIGNAL, model.predict(X)) > 0.8


def test_failed_fit_leaves_a_fitted_estimator_as_it_was() -> None:
    model = FITTED["binary"]()
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X[:, :2], np.zeros(N_ROWS))
    with pytest.raises(ValueError, match="custom objective"):
        model.set_params(objective=lambda y, p: (p, p, p)).fit(X[:, :2], THREE)
    assert pickle.dumps(model.set_params(objective=None)) == before


# Columns.


def test_columns_are_matched_by_name_in_prediction() -> None:
    model = DMLGBMRegressor(n_estimators=5).fit(FRAME, SIGNAL)
    assert model.feature_names_in_.tolist() == list("abcd")
    assert np.array_equal(model.predict(FRAME[list("dbca")]), model.predict(FRAME))
    with pytest.warns(UserWarning, match="X does not have valid feature names, but DMLGBMRegressor was fitted with"):
        assert np.array_equal(model.predict(X), model.predict(FRAME))


def test_refit_without_names_forgets_them() -> None:
    model = DMLGBMRegressor(n_estimators=2).fit(FRAME, SIGNAL)
    assert not hasattr(model.fit(X, SIGNAL), "feature_names_in_")


def test_text_columns_need_no_preparation_and_numbers_can_be_made_categories() -> None:
    colour = RANDOM.integers(0, 4, N_ROWS)
    y = np.array([3.0, -1.0, 2.0, 0.0])[colour]
    as_text = FRAME.assign(colour=np.array(["red", "green", "blue", "grey"])[colour])
    model = DMLGBMRegressor().fit(as_text, y)
    assert r2_score(y, model.predict(as_text)) > 0.99
    for names in (["colour"], [4]):
        as_number = FRAME.assign(colour=colour)
        model = DMLGBMRegressor(categorical_feature=names).fit(as_number, y)
        assert model.booster_.categories[4] == (0, 1, 2, 3)
        assert r2_score(y, model.predict(as_number[["colour", *"abcd"]])) > 0.99


def test_unknown_category_is_missing_unless_it_is_to_be_an_error() -> None:
    frame = FRAME.assign(a=np.array(["x", "y"])[BINARY])
    model = DMLGBMRegressor(n_estimators=5).fit(frame, SIGNAL)
    assert np.array_equal(model.predict(frame.assign(a="new")), model.predict(frame.assign(a=None)))


def test_evaluation_set_with_other_categories_is_encoded_like_the_training_rows() -> None:
    frame = FRAME.assign(a=np.array(["x", "y"])[BINARY])
    part = frame[frame["a"] == "y"]
    model = DMLGBMRegressor(n_estimators=5).fit(frame, SIGNAL, eval_set=(part[list("dcba")], SIGNAL[frame["a"] == "y"]))
    error = np.mean((model.predict(part) - SIGNAL[frame["a"] == "y"]) ** 2)
    assert model.evals_result_["valid_0"]["l2"][-1] == pytest.approx(error)


# scikit-learn.


def test_estimator_works_in_searches_pipelines_and_cross_validation() -> None:
    search = GridSearchCV(DMLGBMClassifier(n_estimators=5), {"num_leaves": [3, 7], "eta": [0.1, 0.3]}, cv=2)
    assert search.fit(X, BINARY).best_score_ > 0.8
    pipeline = make_pipeline(StandardScaler(), DMLGBMRegressor(n_estimators=5)).set_output(transform="pandas")
    assert len(pipeline.fit(FRAME, SIGNAL).predict(FRAME)) == N_ROWS
    assert cross_validate(DMLGBMRegressor(n_estimators=30), X, SIGNAL, cv=2)["test_score"].min() > 0.4


def test_weights_are_routed() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = (
            DMLGBMRegressor(n_estimators=2).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        )
        result = cross_validate(model, X, SIGNAL, cv=2, params={"sample_weight": np.ones(N_ROWS)})
    assert len(result["test_score"]) == 2


# Files and pickles.


@kinds
def test_saved_and_pickled_models_predict_the_same_bits(kind: str, tmp_path: Path) -> None:
    model = FITTED[kind](num_leaves=9, importance_type="gain", n_jobs=1)
    path = tmp_path / "model.dml"
    model.save_model(path)
    loaded = load_model(path)
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params() | {"n_jobs": None}
    for twin in (loaded, pickle.loads(pickle.dumps(model))):
        assert np.array_equal(twin.predict(X, raw_score=True), model.predict(X, raw_score=True))
        assert np.array_equal(twin.predict(X), model.predict(X))
        assert np.array_equal(twin.feature_importances_, model.feature_importances_)
        assert (twin.n_features_in_, twin.n_iter_) == (N_FEATURES, 12)
    loaded.save_model(tmp_path / "again.dml")
    assert (tmp_path / "again.dml").read_bytes() == path.read_bytes()


def test_file_does_not_depend_on_threads(tmp_path: Path) -> None:
    for n_jobs in (1, 2):
        FITTED["three classes"](n_jobs=n_jobs, verbose=0).save_model(tmp_path / str(n_jobs))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_history_names_and_best_iteration_are_saved(tmp_path: Path) -> None:
    model = DMLGBMClassifier(n_estimators=200, early_stopping=True).fit(FRAME, np.array(["n", "y"])[BINARY])
    model.save_model(tmp_path / "model.dml")
    loaded = load_model(tmp_path / "model.dml")
    for name in ("best_iteration_", "best_score_", "evals_result_", "n_iter_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.feature_names_in_.tolist() == list("abcd")
    assert np.array_equal(loaded.predict(FRAME), model.predict(FRAME))


def test_function_parameters_are_left_out_of_the_file(tmp_path: Path) -> None:
    model = DMLGBMClassifier(n_estimators=3, objective=log_loss_objective, class_weight={0: 2.0}).fit(X, BINARY)
    model.save_model(tmp_path / "model.dml")
    loaded = load_model(tmp_path / "model.dml")
    assert loaded.objective is None
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_labels_that_a_file_cannot_hold_are_refused_when_saving(tmp_path: Path) -> None:
    days = np.array([pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02")], dtype=object)[BINARY]
    model = DMLGBMClassifier(n_estimators=2).fit(X, days)
    with pytest.raises(TypeError, match="class labels that are strings or numbers, not Timestamp"):
        model.save_model(tmp_path / "model.dml")
    assert not (tmp_path / "model.dml").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"class": "os.system"},
        {"class": ["DMLGBMRegressor"]},
        {"class": "DMLGBMRegressor"},
        {"parameters": {"no_such": 1}},
        {"parameters": {"n_estimators": "many"}},
        {"parameters": None},
        {"classes": None},
        {"classes": {"dtype": "int64", "values": [0, 1, 2]}},
        {"classes": {"dtype": "int64", "values": [1, 0]}},
        {"classes": {"dtype": "int64", "values": [0, 2**70]}},
        {"classes": {"dtype": "int64", "values": ["0", "1"]}},
        {"classes": {"dtype": "V8", "values": [0, 1]}},
        {"classes": {"dtype": "object", "values": [[0], [1]]}},
        {"best_iteration": 99},
        {"best_iteration": True},
        {"best_score": {"valid": 1.0}},
        {"evals_result": {"valid": {"l2": "x"}}},
        {"evals_result": []},
        {"surprise": 1},
    ],
)
def test_hostile_description_is_a_model_file_error(change: dict[str, Any], tmp_path: Path) -> None:
    model, path = FITTED["binary"](), tmp_path / "model.dml"
    model.save_model(path)
    booster = dmlgbm.Booster.from_bytes(path.read_bytes())
    state = {**booster.metadata["estimator"], **change}
    write_atomically(path, replace(booster, metadata={"estimator": state}).to_bytes())
    with pytest.raises(ModelFileError, match=r"model file '.*model\.dml' is "):
        load_model(path)


def test_unfitted_estimator_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(sklearn.exceptions.NotFittedError):
        DMLGBMRegressor().save_model(tmp_path / "model.dml")


def test_numbers_in_a_column_that_was_text_are_an_error_and_not_all_unknown() -> None:
    pandas = pytest.importorskip("pandas")
    numbers = np.arange(200) % 4
    model = DMLGBMRegressor(n_estimators=3).fit(pandas.DataFrame({"c": numbers.astype(str)}), numbers)
    with pytest.raises(TypeError, match="column 'c' held text when the model was trained"):
        model.predict(pandas.DataFrame({"c": numbers}))

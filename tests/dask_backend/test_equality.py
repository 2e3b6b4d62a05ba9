"""A fit on a cluster gives the model, the metrics and the stopping point of a local fit, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.metrics import accuracy_score, make_scorer, mean_absolute_error

from dmlgbm import DMLGBMClassifier, DMLGBMRanker, DMLGBMRegressor, reset_parameter
from dmlgbm.dask_backend.cluster import DaskCluster
from tests.dask_backend.tables import N_ROWS, UNEVEN, in_partitions, mixed_frame, signal

FitCase = tuple[Any, dict[str, Any]]
"""An estimator, and the arguments of fit as local values."""


def frame_and_signal() -> tuple[pd.DataFrame, np.ndarray]:
    X = mixed_frame()
    return X, signal(X)


def binary() -> FitCase:
    X, z = frame_and_signal()
    return DMLGBMClassifier(n_estimators=6), {"X": X, "y": pd.Series(np.where(z > 1, "yes", "no"))}


def multiclass_with_weights() -> FitCase:
    X, z = frame_and_signal()
    weight = np.random.default_rng(2).integers(0, 3, N_ROWS).astype(float)
    estimator = DMLGBMClassifier(n_estimators=3, class_weight="balanced")
    return estimator, {"X": X, "y": pd.Series(np.digitize(z, [0, 1, 2])), "sample_weight": pd.Series(weight)}


def partitions_of_weightless_rows() -> FitCase:
    """Text that only weightless rows hold, whole weights, and partitions in which nothing weighs anything."""
    X, z = frame_and_signal()
    weight = np.random.default_rng(3).integers(0, 4, N_ROWS).astype(float)
    weight[:401] = 0.0  # three partitions
    X = X.assign(text=np.where(weight > 0, "seen", "unseen"))
    estimator = DMLGBMClassifier(n_estimators=4, precision="exact", min_child_samples=1, max_bin=31)
    return estimator, {"X": X, "y": pd.Series(np.where(z > 1, "yes", "no")), "sample_weight": pd.Series(weight)}


def whole_weights_of_a_small_table() -> FitCase:
    estimator, arguments = partitions_of_weightless_rows()
    return estimator.set_params(precision="auto"), arguments


def ranking_with_weightless_rows() -> FitCase:
    estimator, arguments = ranking_by_sizes()
    weight = pd.Series(np.random.default_rng(4).choice([0.0, 0.5, 2.0], N_ROWS))
    weight[500:501] = 0.0  # the whole second query
    return estimator, {**arguments, "sample_weight": weight}


def absolute_loss_with_whole_weights() -> FitCase:
    estimator, arguments = absolute_loss()
    return estimator, {**arguments, "sample_weight": pd.Series(np.arange(N_ROWS) % 3 + 1.0)}


def regression_with_sampling() -> FitCase:
    X, z = frame_and_signal()
    estimator = DMLGBMRegressor(
        n_estimators=5, subsample=0.6, subsample_freq=1, colsample_bytree=0.7, colsample_bynode=0.8, random_state=7
    )
    return estimator, {"X": X, "y": pd.Series(z)}


def absolute_loss() -> FitCase:
    X, z = frame_and_signal()
    return DMLGBMRegressor(objective="l1", n_estimators=4), {"X": X, "y": pd.Series(z)}


def poisson_with_first_scores() -> FitCase:
    X, z = frame_and_signal()
    first = pd.Series(np.linspace(-0.5, 0.5, N_ROWS))
    counts = pd.Series(np.floor(np.exp(np.clip(z, -2, 2))))
    return DMLGBMRegressor(objective="poisson", n_estimators=4), {"X": X, "y": counts, "init_score": first}


def relative_errors_with_whole_weights() -> FitCase:
    estimator, arguments = absolute_loss_with_whole_weights()
    return estimator.set_params(objective="mape"), {**arguments, "y": 20.0 + 3.0 * arguments["y"]}


def expectiles_of_rows_set_aside() -> FitCase:
    X, z = frame_and_signal()
    estimator = DMLGBMRegressor(objective="expectile", alpha=0.8, n_estimators=30, early_stopping=True)
    return estimator.set_params(early_stopping_rounds=2, learning_rate=0.5), {"X": X, "y": pd.Series(z)}


def unbalanced_classes() -> FitCase:
    """Class counts are those of all partitions."""
    X, z = frame_and_signal()
    weight = pd.Series(np.random.default_rng(5).uniform(0.5, 2.0, N_ROWS))
    estimator = DMLGBMClassifier(n_estimators=5, is_unbalance=True)
    return estimator, {"X": X, "y": pd.Series(np.where(z > 1.5, "yes", "no")), "sample_weight": weight}


def one_against_all() -> FitCase:
    X, z = frame_and_signal()
    estimator = DMLGBMClassifier(objective="multiclassova", n_estimators=3, is_unbalance=True)
    return estimator, {"X": X, "y": pd.Series(np.digitize(z, [0, 1, 2]))}


def hazards_with_weights() -> FitCase:
    X, z = frame_and_signal()
    times = pd.Series(np.ceil(9 * np.exp(z / 3)) * np.where(z > 1, -1, 1))
    weight = pd.Series(np.random.default_rng(5).choice([0.0, 0.5, 2.0], N_ROWS))
    estimator = DMLGBMRegressor(
        objective="cox", n_estimators=4, early_stopping=True, eval_metric=["cox_nloglik", "c_index"]
    )
    return estimator, {"X": X, "y": times, "sample_weight": weight}


def failure_times_between_bounds_early_stopping() -> FitCase:
    X, z = frame_and_signal()
    bounds = pd.DataFrame({"lower": np.exp(z / 3), "upper": np.where(z > 1, np.inf, np.exp(z / 3))})
    estimator = DMLGBMRegressor(
        objective="aft", eval_metric=["aft_nloglik", "c_index"], n_estimators=30, early_stopping=True
    )
    return estimator, {"X": X, "y": bounds}


def few_bins_level_by_level() -> FitCase:
    X, z = frame_and_signal()
    estimator = DMLGBMRegressor(
        n_estimators=4, max_bin=15, subsample_for_bin=300, grow_policy="depthwise", max_depth=4, precision="exact"
    )
    return estimator, {"X": X, "y": pd.Series(z)}


def listed_categories() -> FitCase:
    X, z = frame_and_signal()
    estimator = DMLGBMRegressor(n_estimators=4, categorical_feature=["whole"], max_cat_to_onehot=2, cat_smooth=1)
    return estimator, {"X": X, "y": pd.Series(z)}


def ordered_columns() -> FitCase:
    X, z = frame_and_signal()
    constraints = {"number": -1, "whole": 1, "day": 1}
    return DMLGBMRegressor(objective="quantile", n_estimators=4, monotone_constraints=constraints), {
        "X": X,
        "y": pd.Series(z),
    }


def columns_apart() -> FitCase:
    X, z = frame_and_signal()
    groups = [["number", "text"], ["whole", "kind", "day", "narrow", "constant"], ["number", "whole"]]
    return DMLGBMClassifier(n_estimators=4, interaction_constraints=groups), {"X": X, "y": pd.Series(z > 1)}


def plain_array() -> FitCase:
    X, z = frame_and_signal()
    numbers = X[["number", "whole", "narrow"]].to_numpy()
    return DMLGBMClassifier(n_estimators=5), {"X": numbers, "y": (z > 1).astype(np.int64)}


def ranking_by_ids() -> FitCase:
    X, z = frame_and_signal()
    ids = pd.Series(np.repeat(np.arange(N_ROWS // 7 + 1), 7)[:N_ROWS])
    return DMLGBMRanker(n_estimators=4), {"X": X, "y": pd.Series(np.digitize(z, [0, 1, 2])), "qid": ids}


def ranking_by_sizes() -> FitCase:
    X, z = frame_and_signal()
    sizes = [500, 1, 300, N_ROWS - 801]
    return DMLGBMRanker(n_estimators=3), {"X": X, "y": pd.Series(np.digitize(z, [0, 1])), "group": sizes}


def ranking_by_cross_entropy() -> FitCase:
    estimator, arguments = ranking_by_ids()
    return estimator.set_params(objective="rank_xendcg"), arguments


def ranking_with_positions() -> FitCase:
    estimator, arguments = ranking_by_ids()
    estimator.set_params(lambdarank_position_bias_regularization=0.1)
    return estimator, {**arguments, "position": pd.Series(np.arange(N_ROWS) % 7)}


def ranking_with_gains_of_labels() -> FitCase:
    estimator, arguments = ranking_early_stopping_on_queries_set_aside()
    return estimator.set_params(label_gain=[0, 1, 2, 3], lambdarank_norm=False), arguments


def early_stopping_on_rows_set_aside() -> FitCase:
    X, z = frame_and_signal()
    labels = pd.Series(np.digitize(z, [0.5, 1.5]))
    estimator = DMLGBMClassifier(
        n_estimators=40, learning_rate=0.5, early_stopping=True, early_stopping_rounds=2, random_state=3
    )
    return estimator, {"X": X, "y": labels}


def regression_early_stopping_on_rows_set_aside() -> FitCase:
    X, z = frame_and_signal()
    estimator = DMLGBMRegressor(
        n_estimators=40, learning_rate=0.5, early_stopping=True, early_stopping_rounds=2, validation_fraction=0.3
    )
    return estimator, {"X": X, "y": pd.Series(z)}


def refit_after_stopping() -> FitCase:
    estimator, arguments = early_stopping_on_rows_set_aside()
    weight = pd.Series(np.random.default_rng(6).choice([0.0, 0.7, 2.0], N_ROWS))
    return estimator.set_params(refit_after_stopping=True), {**arguments, "sample_weight": weight}


def refit_of_absolute_loss_after_stopping() -> FitCase:
    estimator, arguments = regression_early_stopping_on_rows_set_aside()
    return estimator.set_params(refit_after_stopping=True, objective="l1"), arguments


def refit_of_new_iterations_after_stopping() -> FitCase:
    estimator, arguments = regression_early_stopping_on_rows_set_aside()
    before = DMLGBMRegressor(n_estimators=2).fit(**arguments)
    return estimator.set_params(refit_after_stopping=True), {**arguments, "init_model": before}


def refit_of_ordered_leaves_with_changing_rates_after_stopping() -> FitCase:
    estimator, arguments = regression_early_stopping_on_rows_set_aside()
    arguments["X"] = arguments["X"].select_dtypes("number")
    estimator.set_params(refit_after_stopping=True, monotone_constraints=[1, *[0] * (arguments["X"].shape[1] - 1)])
    rates = reset_parameter(learning_rate=lambda iteration: 0.5 * 0.9**iteration)
    return estimator, {**arguments, "callbacks": [rates]}


def refit_of_a_forest_after_stopping() -> FitCase:
    estimator, arguments = regression_early_stopping_on_rows_set_aside()
    estimator.set_params(refit_after_stopping=True, boosting_type="rf", subsample=0.5, subsample_freq=1)
    return estimator.set_params(learning_rate=0.1), arguments


def refit_of_ranking_after_stopping() -> FitCase:
    estimator, arguments = ranking_early_stopping_on_queries_set_aside()
    return estimator.set_params(refit_after_stopping=True), arguments


def ranking_early_stopping_on_queries_set_aside() -> FitCase:
    estimator, arguments = ranking_by_ids()
    return estimator.set_params(n_estimators=30, early_stopping=True, early_stopping_rounds=2), arguments


def several_evaluation_sets() -> FitCase:
    X, z = frame_and_signal()
    other = mixed_frame(333, seed=9)
    y, other_y = pd.Series(z > 1), pd.Series(signal(other, 8) > 1)
    estimator = DMLGBMClassifier(
        n_estimators=30,
        learning_rate=0.5,
        early_stopping=True,
        early_stopping_rounds=3,
        eval_metric=["auc", "logloss", "error"],
    )
    weight = pd.Series(np.linspace(0, 1, 333))
    return estimator, {
        "X": X,
        "y": y,
        "eval_set": [(other, other_y), (X, y)],
        "eval_names": ["other", "own"],
        "eval_sample_weight": [weight, None],
    }


def going_on_from_a_model() -> FitCase:
    estimator, arguments = binary()
    before = DMLGBMClassifier(n_estimators=3).fit(**arguments)
    return estimator, {**arguments, "init_model": before}


def a_scorer_watched_beside_the_training_rows() -> FitCase:
    estimator, arguments = several_evaluation_sets()
    estimator.set_params(scoring="roc_auc", early_stopping="auto", first_metric_only=False)
    sets, weights = arguments["eval_set"], arguments["eval_sample_weight"]
    return estimator, {
        **arguments,
        "eval_set": sets[::-1],
        "eval_names": ["own", "other"],
        "eval_sample_weight": weights[::-1],
    }


def metrics_of_classes_beside_scorers() -> FitCase:
    X, z = frame_and_signal()
    other = mixed_frame(333, seed=9)
    estimator = DMLGBMClassifier(
        n_estimators=5,
        eval_metric=[
            *("f1_macro", "mcc", "balanced_accuracy", "auc_ovr", "auc_ovo", "average_precision", "top_2_error"),
            *("brier", "calibration_error", "neg_log_loss", make_scorer(accuracy_score)),
        ],
    )
    return estimator, {
        "X": X,
        "y": pd.Series(np.digitize(z, [0, 1, 2])),
        "eval_set": [(other, pd.Series(np.digitize(signal(other, 8), [0, 1, 2])))],
        "eval_sample_weight": [pd.Series(np.linspace(0.3, 1, 333))],
    }


def training_loss_of_a_model_gone_on_from() -> FitCase:
    X, z = frame_and_signal()
    arguments = {"X": X, "y": pd.Series(z)}
    before = DMLGBMRegressor(n_estimators=25, learning_rate=0.5).fit(**arguments)
    estimator = DMLGBMRegressor(
        n_estimators=20,
        early_stopping=True,
        early_stopping_rounds=2,
        early_stopping_min_delta=0.05,
        validation_fraction=None,
        eval_metric=["l1", "l2"],
    )
    return estimator, {**arguments, "init_model": before}


def random_forest_that_stops_early() -> FitCase:
    estimator, arguments = several_evaluation_sets()
    return estimator.set_params(boosting_type="rf", subsample=0.5, subsample_freq=1, learning_rate=0.1), arguments


def random_forest_that_goes_on() -> FitCase:
    X, z = frame_and_signal()
    first = pd.Series(np.linspace(-0.5, 0.5, N_ROWS))
    arguments = {"X": X, "y": pd.Series(z), "init_score": first}
    estimator = DMLGBMRegressor(boosting_type="rf", n_estimators=3, colsample_bytree=0.5)
    return estimator, {**arguments, "init_model": DMLGBMRegressor(**estimator.get_params()).fit(**arguments)}


def dropout() -> FitCase:
    estimator, arguments = several_evaluation_sets()
    estimator.set_params(boosting_type="dart", n_estimators=6, skip_drop=0.2, drop_rate=0.5, early_stopping=False)
    return estimator, arguments


def dropout_that_goes_on() -> FitCase:
    estimator, arguments = going_on_from_a_model()
    return estimator.set_params(boosting_type="dart", skip_drop=0.0, drop_rate=0.5), arguments


def one_sided_samples() -> FitCase:
    X, z = frame_and_signal()
    estimator = DMLGBMClassifier(boosting_type="goss", learning_rate=0.5, n_estimators=5, random_state=2)
    return estimator, {"X": X, "y": pd.Series(np.digitize(z, [0, 1]))}


def weights_at_random() -> FitCase:
    X, z = frame_and_signal()
    return DMLGBMRegressor(bootstrap_type="bayesian", n_estimators=4), {"X": X, "y": pd.Series(z)}


def rows_by_the_size_of_gradients() -> FitCase:
    estimator, arguments = multiclass_with_weights()
    return estimator.set_params(bootstrap_type="mvs", subsample=0.5), arguments


def shares_of_two_classes() -> FitCase:
    estimator, arguments = binary()
    estimator.set_params(pos_bagging_fraction=0.9, neg_bagging_fraction=0.4, subsample_freq=2)
    return estimator, arguments


def changing_rates_of_a_model_gone_on_from() -> FitCase:
    estimator, arguments = going_on_from_a_model()
    rates = reset_parameter(learning_rate=lambda iteration: 0.5 * 0.7**iteration)
    return estimator, {**arguments, "callbacks": [rates]}


CASES: list[Callable[[], FitCase]] = [
    changing_rates_of_a_model_gone_on_from,
    weights_at_random,
    rows_by_the_size_of_gradients,
    shares_of_two_classes,
    random_forest_that_stops_early,
    random_forest_that_goes_on,
    dropout,
    dropout_that_goes_on,
    one_sided_samples,
    binary,
    multiclass_with_weights,
    partitions_of_weightless_rows,
    whole_weights_of_a_small_table,
    ranking_with_weightless_rows,
    absolute_loss_with_whole_weights,
    regression_with_sampling,
    absolute_loss,
    poisson_with_first_scores,
    relative_errors_with_whole_weights,
    expectiles_of_rows_set_aside,
    unbalanced_classes,
    one_against_all,
    hazards_with_weights,
    failure_times_between_bounds_early_stopping,
    few_bins_level_by_level,
    listed_categories,
    ordered_columns,
    columns_apart,
    plain_array,
    ranking_by_ids,
    ranking_by_sizes,
    ranking_by_cross_entropy,
    ranking_with_positions,
    ranking_with_gains_of_labels,
    early_stopping_on_rows_set_aside,
    regression_early_stopping_on_rows_set_aside,
    ranking_early_stopping_on_queries_set_aside,
    refit_after_stopping,
    refit_of_absolute_loss_after_stopping,
    refit_of_ordered_leaves_with_changing_rates_after_stopping,
    refit_of_a_forest_after_stopping,
    refit_of_new_iterations_after_stopping,
    refit_of_ranking_after_stopping,
    several_evaluation_sets,
    going_on_from_a_model,
    a_scorer_watched_beside_the_training_rows,
    metrics_of_classes_beside_scorers,
    training_loss_of_a_model_gone_on_from,
]


def collected(arguments: dict[str, Any], partitions: Any) -> dict[str, Any]:
    """The same arguments as Dask collections."""
    n_rows = len(arguments["X"])
    lazy = {}
    for name, value in arguments.items():
        if name == "eval_set":
            lazy[name] = [(in_partitions(X, 2), in_partitions(y, 2)) for X, y in value]
        elif name == "eval_sample_weight":
            lazy[name] = [None if each is None else in_partitions(each, 2) for each in value]
        elif isinstance(value, pd.DataFrame | pd.Series | np.ndarray) and len(value) == n_rows:
            lazy[name] = in_partitions(value, partitions)
        else:
            lazy[name] = value
    return lazy


def assert_same_fit(found: Any, expected: Any) -> None:
    assert found.booster_.to_bytes() == expected.booster_.to_bytes()
    assert found.evals_result_ == expected.evals_result_
    assert found.best_iteration_ == expected.best_iteration_
    assert found.best_score_ == expected.best_score_
    if hasattr(expected, "classes_"):
        assert found.classes_.dtype == expected.classes_.dtype
        assert found.classes_.tolist() == expected.classes_.tolist()
    assert set(vars(found)) - {"plan_", "fit_report_"} == set(vars(expected))


@pytest.fixture(scope="module")
def local_fits() -> dict[str, Any]:
    """Each local fit is made once."""
    return {}


@pytest.mark.parametrize(
    ("case", "partitions"),
    [
        *((case, UNEVEN) for case in CASES),
        *((case, 3) for case in (binary, plain_array, early_stopping_on_rows_set_aside)),
    ],
    ids=lambda value: getattr(value, "__name__", "even" if value == 3 else "uneven"),
)
def test_cluster_fit_is_the_local_fit(
    client: Client, case: Callable[[], FitCase], partitions: Any, local_fits: dict[str, Any]
) -> None:
    estimator, arguments = case()
    if case.__name__ not in local_fits:
        local_fits[case.__name__] = case()[0].fit(**arguments)
    found = estimator.fit(**collected(arguments, partitions))
    assert_same_fit(found, local_fits[case.__name__])
    assert found.fit_report_.n_ranks == 2


@pytest.mark.parametrize(
    "case",
    [
        multiclass_with_weights,
        regression_with_sampling,
        ranking_by_ids,
        ordered_columns,
        columns_apart,
        refit_after_stopping,
    ],
    ids=lambda case: case.__name__,
)
def test_dividing_columns_gives_the_local_fit_too(
    client: Client, case: Callable[[], FitCase], local_fits: dict[str, Any]
) -> None:
    estimator, arguments = case()
    if case.__name__ not in local_fits:
        local_fits[case.__name__] = case()[0].fit(**arguments)
    found = estimator.set_params(tree_learner="feature").fit(**collected(arguments, UNEVEN))
    assert found.booster_.to_bytes() == local_fits[case.__name__].booster_.to_bytes()
    assert found.fit_report_.tree_learner == found.plan_.tree_learner == "feature"


def test_voting_for_some_features_is_nearly_as_good(client: Client) -> None:
    estimator, arguments = binary()
    found = estimator.set_params(tree_learner="voting", top_k=3).fit(**collected(arguments, 3))
    local = binary()[0].fit(**arguments)
    assert found.fit_report_.tree_learner == "voting"
    X, y = arguments["X"], arguments["y"]
    assert found.score(X, y) > local.score(X, y) - 0.03


@pytest.mark.parametrize("case", [binary, ranking_by_ids, several_evaluation_sets], ids=lambda case: case.__name__)
def test_without_a_client_the_same_path_runs_in_this_process(case: Callable[[], FitCase]) -> None:
    estimator, arguments = case()
    found = estimator.fit(**collected(arguments, UNEVEN))
    assert_same_fit(found, case()[0].fit(**arguments))
    assert found.fit_report_.n_ranks == 1


def test_more_workers_than_partitions_leave_workers_out(client: Client) -> None:
    estimator, arguments = binary()
    found = estimator.fit(**collected(arguments, 1))
    assert_same_fit(found, binary()[0].fit(**arguments))
    assert found.fit_report_.n_ranks == 1


def test_known_divisions_and_local_vectors_fit_too(client: Client) -> None:
    estimator, arguments = multiclass_with_weights()
    lazy = dd.from_pandas(arguments["X"], npartitions=4)
    found = estimator.fit(lazy, arguments["y"].to_numpy(), sample_weight=arguments["sample_weight"].to_list())
    assert_same_fit(found, multiclass_with_weights()[0].fit(**arguments))


def test_local_evaluation_sets_are_watched_on_the_cluster(client: Client) -> None:
    estimator, arguments = several_evaluation_sets()
    lazy = {**arguments, "X": in_partitions(arguments["X"], 3), "y": in_partitions(arguments["y"], 3)}
    assert_same_fit(estimator.fit(**lazy), several_evaluation_sets()[0].fit(**arguments))


def test_persisted_data_is_used_where_it_lies(client: Client) -> None:
    estimator, arguments = binary()
    lazy = {name: value.persist() for name, value in collected(arguments, 4).items()}
    assert_same_fit(estimator.fit(**lazy), binary()[0].fit(**arguments))


@pytest.mark.parametrize("case", [multiclass_with_weights, ranking_by_ids], ids=lambda case: case.__name__)
def test_partitions_too_large_to_be_kept_are_read_again(
    client: Client, case: Callable[[], FitCase], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DaskCluster, "memory", lambda self: 1.0)
    estimator, arguments = case()
    assert_same_fit(estimator.fit(**collected(arguments, UNEVEN)), case()[0].fit(**arguments))


def test_collection_that_changes_between_readings_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(DaskCluster, "memory", lambda self: 1.0)
    X, z = frame_and_signal()
    lazy = in_partitions(X, 2).map_partitions(shorter_the_second_time, str(tmp_path), meta=X.iloc[:0])
    with pytest.raises(ValueError, match=r"Partition \d of X had \d+ rows when it was read first and 0 when"):
        DMLGBMRegressor(n_estimators=2).fit(lazy, in_partitions(pd.Series(z), 2))


def shorter_the_second_time(part: pd.DataFrame, folder: str) -> pd.DataFrame:
    mark = Path(folder) / str(part.index[0])
    if mark.exists():
        return part.iloc[:-1]
    mark.touch()
    return part


def test_categories_that_partitions_do_not_know_of_each_other_are_joined_as_dask_joins_them(client: Client) -> None:
    X, z = frame_and_signal()
    parts = [X.iloc[:400].copy(), X.iloc[400:800].copy(), X.iloc[800:].copy()]
    for part, order in zip(parts, (["c", "a"], ["b"], ["a", "b", "c"]), strict=True):
        part["kind"] = part["kind"].cat.set_categories(order)
    import dask

    lazy = dd.from_delayed([dask.delayed(part) for part in parts], meta=parts[0].iloc[:0], verify_meta=False)
    y = pd.Series(z)
    found = DMLGBMRegressor(n_estimators=4).fit(lazy, in_partitions(y, (0, 400, 800, N_ROWS)))
    assert_same_fit(found, DMLGBMRegressor(n_estimators=4).fit(lazy.compute(), y))
    assert found.booster_.categories[3] == ("c", "a", "b")


def test_text_is_categorical_also_where_a_partition_has_none(client: Client) -> None:
    X, z = frame_and_signal()
    X.loc[:500, "text"] = None
    y = pd.Series(z)
    found = DMLGBMRegressor(n_estimators=4).fit(in_partitions(X, 4), in_partitions(y, 4))
    assert_same_fit(found, DMLGBMRegressor(n_estimators=4).fit(X, y))


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 3, 4])
def test_number_of_workers_does_not_change_the_model(n_workers: int) -> None:
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        for case in CASES:
            local = case()[0].fit(**case()[1])
            for mode in ("data", "feature"):
                estimator, arguments = case()
                found = estimator.set_params(tree_learner=mode).fit(**collected(arguments, 6))
                assert found.booster_.to_bytes() == local.booster_.to_bytes()
                assert found.evals_result_ == local.evals_result_


@pytest.mark.filterwarnings("error:X of eval_set")
def test_arguments_of_fit_mean_what_they_mean_locally() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 2] = rng.integers(0, 4, 200)
    y = X[:, 0] + (X[:, 2] == 1)
    seen: list[int] = []
    settings: dict[str, Any] = {
        "feature_name": ["a", "b", "c"],
        "categorical_feature": [False, False, True],
        "eval_metric": mean_absolute_error,
        "callbacks": lambda state: seen.append(state.iteration),
    }
    parameters = {"n_estimators": 3, "num_leaves": None, "min_data_in_bin": 5}
    local = DMLGBMRegressor(**parameters).fit(X, y, eval_set=[(X, y)], **settings)
    lazy = da.from_array(X, chunks=(80, 3)), da.from_array(y, chunks=80)
    remote = DMLGBMRegressor(**parameters).fit(*lazy, eval_set=[lazy], **settings)
    assert remote.booster_ == local.booster_
    assert remote.booster_.feature_names == ("a", "b", "c")
    assert remote.evals_result_ == local.evals_result_
    assert seen == [1, 2, 3] * 2

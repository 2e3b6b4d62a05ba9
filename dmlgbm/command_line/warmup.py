"""`dmlgbm warmup`: compile and keep on disk every kernel, so that no later fit waits for the compiler.

numba compiles a kernel once for each combination of argument types. The steps are small fits that together meet every
kernel with the types that the engine passes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dmlgbm.command_line.console import Console

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SUMMARY = "Compile all kernels now, so that the first fit does not wait."

_N_ROWS, _N_FEATURES = 600, 6
_QUERY_ROWS = 20
_MANY_CATEGORIES = 40
# As many cells as it takes for threads to share the work on one tree.
_ROWS_FOR_THREADS, _FEATURES_FOR_THREADS = 100_000, 20
_ROWS_FOR_RANKS = 12_000
_SPARSE_FEATURES = 40
_SECONDS_TO_COMPILE = 600.0
_ADDED_UP = ("int64", "uint64", "uint8", "float64", "float32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments but --json."""


def run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    started = time.perf_counter()
    from dmlgbm.gbdt.machine_code.compilation_counts import compilation_counts

    steps: dict[str, float] = {}

    def finish_step(name: str, step_started: float) -> None:
        steps[name] = time.perf_counter() - step_started
        console.say(f"{name:<40}{steps[name]:>8.2f} s")

    import dmlgbm.command_line.generated_rows
    import dmlgbm.sklearn_api  # noqa: F401

    finish_step("load the libraries", started)
    for name, step in _STEPS.items():
        step_started = time.perf_counter()
        step()
        finish_step(name, step_started)
    counts = compilation_counts()
    total = time.perf_counter() - started
    console.say(f"{'':<40}{total:>8.2f} s")
    kept = "with no place to keep them" if counts.folder is None else f"in {counts.folder}"
    console.say(f"\ncompiled {counts.compiled} kernels, found {counts.from_disk} on disk, {kept}")
    return {
        "command": "warmup",
        "seconds": total,
        "steps": steps,
        "compiled": counts.compiled,
        "from_disk": counts.from_disk,
        "cache": counts.folder,
    }


def _two_classes() -> None:
    features, target = _rows()
    weight = 1.0 + (features[:, 0] > 0)
    for sample_weight in (None, weight):
        model = _classifier(eval_metric=["binary_logloss", "auc", "binary_error"])
        model.fit(
            features,
            target > 0,
            sample_weight=sample_weight,
            eval_set=[(features, target > 0)],
            eval_sample_weight=None if sample_weight is None else [sample_weight],
        )
    model.predict_proba(features)
    model.predict(features)
    model.apply(features)
    model.one_row()(features[0])
    list(model.staged_predict(features))


def _several_classes() -> None:
    features, target = _rows()
    labels = (target > -0.3).astype("int64") + (target > 0.4)
    for objective in ("multiclass", "multiclassova"):
        model = _classifier(objective=objective, eval_metric=["multi_logloss", "multi_error"])
        for sample_weight in (None, 1.0 + (features[:, 0] > 0)):
            model.fit(features, labels, sample_weight=sample_weight, eval_set=[(features, labels)])
        model.predict_proba(features)


def _regression() -> None:
    features, target = _rows()
    metrics = ["rmse", "l1", "quantile", "mape", "fair", "logcosh"]
    for objective in ("regression", "regression_l1", "quantile", "mape"):
        for sample_weight in (None, 1.0 + (features[:, 0] > 0)):
            model = _regressor(objective=objective, eval_metric=metrics)
            model.fit(features, target, sample_weight=sample_weight, eval_set=[(features, target)])
    model.predict(features)


def _rates() -> None:
    import numpy as np

    features, target = _rows()
    counts = np.floor(np.abs(4.0 * target))
    for sample_weight in (None, 1.0 + (features[:, 0] > 0)):
        model = _regressor(objective="poisson").fit(
            features, counts, sample_weight=sample_weight, eval_set=[(features, counts)]
        )
    model.predict(features)


def _survival_times() -> None:
    import numpy as np

    features, target = _rows()
    times = np.exp(target) * np.where(features[:, 1] > 0, -1.0, 1.0)
    for objective in ("cox", "aft"):
        model = _regressor(objective=objective, eval_metric=[f"{objective}_nloglik", "c_index"])
        model.fit(features, times, eval_set=[(features, times)])
    model.predict(features)


def _ranking() -> None:
    import dmlgbm

    features, target = _rows()
    grades = (target > -0.3).astype("int64") + (target > 0.4)
    groups = [_QUERY_ROWS] * (_N_ROWS // _QUERY_ROWS)
    weight = 1.0 + (features[:, 0] > 0)
    metrics = ["ndcg", "map", "mrr", "err"]
    for objective, sample_weight in (("lambdarank", None), ("lambdarank", weight), ("rank_xendcg", None)):
        dmlgbm.DMLGBMRanker(objective=objective, **_SMALL, n_jobs=1, eval_metric=metrics).fit(
            features,
            grades,
            group=groups,
            sample_weight=sample_weight,
            eval_set=[(features, grades)],
            eval_group=[groups],
            eval_sample_weight=None if sample_weight is None else [sample_weight],
        )


def _categories() -> None:
    import numpy as np

    features, target = _rows()
    few, many = np.floor(features[:, 0] + 1.0), np.floor((features[:, 1] + 1.0) * _MANY_CATEGORIES / 2)
    table = np.column_stack([few, many, features[:, 2]])
    model = _regressor(categorical_feature=[0, 1], min_data_per_group=5, cat_smooth=1.0, max_cat_to_onehot=2)
    model.fit(table, target)
    model.predict(table)
    model.apply(table)


def _sparse_columns() -> None:
    import numpy as np
    from scipy import sparse

    features, target = _rows(_SPARSE_FEATURES)
    matrix = sparse.csr_array(np.where(features > 0.8, features, 0.0))
    _regressor().fit(matrix, target).predict(matrix)
    _classifier(precision="exact").fit(matrix, target > 0).predict(matrix)


def _row_and_feature_samples() -> None:
    features, target = _rows()
    sampled = {"subsample": 0.5, "subsample_freq": 1, "colsample_bytree": 0.8, "colsample_bynode": 0.5}
    _classifier(**sampled, extra_trees=True).fit(features, target > 0)
    _regressor(**sampled, subsample_for_bin=100, early_stopping=True).fit(features, target)
    # The second iteration leaves out the first, and draws rows by their gradients.
    dropout: dict[str, Any] = {"boosting_type": "dart", "drop_rate": 1.0, "skip_drop": 0.0}
    _regressor(**dropout, data_sample_strategy="goss", learning_rate=1.0).fit(features, target)
    _regressor(bootstrap_type="bayesian").fit(features, target)
    _regressor(bootstrap_type="mvs", subsample=0.5).fit(features, target)


def _constraints() -> None:
    features, target = _rows()
    _regressor(monotone_constraints=[1] * features.shape[1]).fit(features, target)
    _regressor(path_smooth=5.0).fit(features, target)
    _regressor(interaction_constraints="pairwise").fit(features, target)


def _refitted_leaves() -> None:
    import numpy as np

    import dmlgbm

    features, target = _rows()
    weight = 1.0 + (features[:, 0] > 0)
    for objective in ("regression", "quantile", "poisson"):
        for sample_weight in (None, weight, weight / 3):
            model = _regressor(objective=objective).fit(features, np.abs(target))
            model.refit(features, np.abs(target), sample_weight=sample_weight)
    for labels in (target > 0, (target > -0.3).astype("int64") + (target > 0.4)):
        for sample_weight in (None, weight, weight / 3):
            _classifier().fit(features, labels).refit(features, labels, sample_weight=sample_weight)
    grades, groups = target > 0, [_QUERY_ROWS] * (_N_ROWS // _QUERY_ROWS)
    dmlgbm.DMLGBMRanker(**_SMALL, n_jobs=1).fit(features, grades, group=groups).refit(features, grades, group=groups)


def _rows_watched_as_bins() -> None:
    import dmlgbm

    features, target = _rows()
    data = dmlgbm.Dataset(features, target)
    dmlgbm.train({"num_threads": 1, **_SMALL}, data, 2, data)


def _exact_precision() -> None:
    features, target = _rows()
    _classifier(precision="exact").fit(features, target > 0)
    _regressor(precision="exact", grow_policy="depthwise").fit(features, target)


def _wide_bins() -> None:
    features, target = _rows()
    _regressor(max_bin=500).fit(features, target)


def _many_leaves() -> None:
    features, target = _rows()
    model = _regressor(num_leaves=_N_ROWS, min_child_samples=1)
    model.fit(features, target)
    # Whole weights and bags take the kernels of single passes, as ranks do.
    model.set_params(subsample=0.5, subsample_freq=1).fit(features, target, sample_weight=1.0 + (features[:, 0] > 0))


def _many_trees() -> None:
    """As many trees and rows as it takes to compare ranks instead of values."""
    features, target = _rows()
    labels = (target > -0.3).astype("int64") + (target > 0.4)
    for model in (
        _regressor(n_estimators=40).fit(features, target),
        _classifier(n_estimators=40).fit(features, labels),
    ):
        model.predict(features.repeat(_ROWS_FOR_RANKS // _N_ROWS, axis=0))


def _two_threads() -> None:
    from dmlgbm.command_line.generated_rows import generated_rows

    features, target = generated_rows(_ROWS_FOR_THREADS, _FEATURES_FOR_THREADS)
    _classifier(n_jobs=2).fit(features, target > 0)
    # Both threads share the third tree.
    _classifier(n_jobs=2).fit(features, (target > -0.3).astype("int64") + (target > 0.4))
    _regressor(n_jobs=2, precision="exact").fit(features, target).predict(features)


def _single_precision() -> None:
    features, target = _rows()
    narrow: npt.NDArray[np.float32] = features.astype("float32")
    _regressor().fit(narrow, target.astype("float32")).predict(narrow)


def _whole_numbers() -> None:
    import numpy as np

    features, target = _rows()
    whole = np.floor(300.0 * features)
    for values in (whole, whole.astype("float32")):
        for table in (np.ascontiguousarray(values), np.asfortranarray(values)):
            _regressor().fit(table, target)
            _regressor(max_bin=1000).fit(table, target)


def _shares_of_rows() -> None:
    import dask.array

    features, target = _rows()
    in_chunks, target_in_chunks = dask.array.from_array(features, (200, -1)), dask.array.from_array(target, 200)
    for tree_learner in ("data", "feature", "voting"):
        _regressor(tree_learner=tree_learner).fit(in_chunks, target_in_chunks)


def _sums_over_ranks() -> None:
    """As ranks of other hosts, which have no memory in common, and networks make them."""
    import numpy as np

    from dmlgbm.collectives.joining.join import JoinOptions
    from dmlgbm.collectives.joining.launch import run_threads

    def add_up(communicator: Any) -> None:
        for dtype in _ADDED_UP:
            communicator.all_reduce(np.zeros(8, dtype))

    for transport in ("memory", "unix"):
        run_threads(add_up, 2, transport=transport, options=JoinOptions(timeout=_SECONDS_TO_COMPILE))


def _neural_models() -> None:
    from dmlgbm import neural

    features, target = _rows()
    optimisers: tuple[dict[str, Any], ...] = (
        {"optimiser": "adam"},
        {"optimiser": "lamb"},
        {"optimiser": "sgd", "optimiser_options": {"momentum": 0.9}},
        {"optimiser": "sgd", "optimiser_options": {"momentum": 0.9, "nesterov": True}},
    )
    for optimiser in optimisers:
        neural.DMLLinearRegressor(**optimiser, max_epochs=1, dtype="float32").fit(features, target)
        neural.DMLLinearRegressor(**optimiser, max_epochs=1, dtype="float64").fit(features, target)


_SMALL: dict[str, Any] = {"n_estimators": 2, "num_leaves": 8, "min_child_samples": 5}

_STEPS: dict[str, Callable[[], None]] = {
    "two classes": _two_classes,
    "several classes": _several_classes,
    "squared, absolute and other errors": _regression,
    "Poisson rates": _rates,
    "survival times": _survival_times,
    "ranking": _ranking,
    "categories": _categories,
    "sparse columns": _sparse_columns,
    "samples of rows and features": _row_and_feature_samples,
    "constraints": _constraints,
    "refitted leaves": _refitted_leaves,
    "rows watched as bins": _rows_watched_as_bins,
    "exact precision, growth by level": _exact_precision,
    "more than 255 bins": _wide_bins,
    "more than 255 leaves": _many_leaves,
    "many trees": _many_trees,
    "two threads": _two_threads,
    "single precision": _single_precision,
    "whole numbers, by row and by column": _whole_numbers,
    "shares of the rows": _shares_of_rows,
    "sums over ranks": _sums_over_ranks,
    "optimisers of neural models": _neural_models,
}


def _rows(n_features: int = _N_FEATURES) -> Any:
    from dmlgbm.command_line.generated_rows import generated_rows

    return generated_rows(_N_ROWS, n_features)


def _classifier(**parameters: Any) -> Any:
    import dmlgbm

    return dmlgbm.DMLGBMClassifier(**{"n_jobs": 1, **_SMALL, **parameters})


def _regressor(**parameters: Any) -> Any:
    import dmlgbm

    return dmlgbm.DMLGBMRegressor(**{"n_jobs": 1, **_SMALL, **parameters})

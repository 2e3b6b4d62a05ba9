"""Fits of every common kind, in a process of their own that tells the bytes of its models and what it compiled.

`python common_fits.py [kind ...]` runs all kinds, or those that are named, with the `dmlgbm` that the interpreter
finds, and prints JSON. Nothing here imports the tests: the interpreter may be one that has only a wheel.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Model = Any
N_ROWS, N_FEATURES = 700, 6


def _table(dtype: str = "float64", n_rows: int = N_ROWS) -> Any:
    generator = np.random.default_rng(7)
    x = generator.normal(size=(n_rows, N_FEATURES))
    x[::7, 1] = np.nan
    x[:, 4] = generator.integers(0, 9, n_rows)
    return x.astype(dtype)


def _target(x: Any) -> Any:
    return (np.asarray(x[:, 0], "float64") + np.asarray(x[:, 2], "float64") ** 2).round(4)


def _grades(x: Any) -> Any:
    return np.digitize(_target(x), [0.2, 1.0])


def _regressor(**parameters: Any) -> Model:
    from dmlgbm import DMLGBMRegressor

    return DMLGBMRegressor(**{"n_estimators": 3, "num_leaves": 9, **parameters})


def _classifier(**parameters: Any) -> Model:
    from dmlgbm import DMLGBMClassifier

    return DMLGBMClassifier(**{"n_estimators": 3, "num_leaves": 9, **parameters})


def _layouts() -> list[Model]:
    models = []
    for table in (_table(), _table("float32"), np.asfortranarray(_table()), _table()[:, ::-1], _table()[::2]):
        models.append(_regressor().fit(table, _target(table)))
        models[-1].predict(table)
        models[-1].predict(table[:1])
    whole = np.nan_to_num(_table()).astype("int64")
    return [*models, _regressor().fit(whole, whole[:, 0])]


def _threads() -> list[Model]:
    table = _table(n_rows=60_000)
    fits = [_regressor(n_jobs=n_jobs, num_leaves=63).fit(table, _target(table)) for n_jobs in (1, 2, 3)]
    fits.append(_classifier(n_jobs=2).fit(table, _target(table) > 1))
    for model in fits:
        model.predict(table)
    return fits


def _two_classes() -> list[Model]:
    x = _table()
    y, weight = np.where(_target(x) > 1, "yes", "no"), 1.0 + (x[:, 0] > 0)
    watched = _classifier(eval_metric=["auc", "binary_logloss", "f1", "aucpr"], early_stopping_rounds=2)
    models = [
        _classifier().fit(x, y),
        _classifier(class_weight="balanced").fit(x, y, sample_weight=weight),
        watched.fit(x[:500], y[:500], eval_set=[(x[500:], y[500:])], eval_sample_weight=[weight[500:]]),
        _classifier(early_stopping=True, n_estimators=9).fit(x, y),
    ]
    models[0].predict_proba(x)
    models[0].predict(x.astype("float32"))
    models[0].apply(x)
    list(models[0].staged_predict_proba(x))
    models[0].predict(x, raw_score=True)
    return models


def _several_classes() -> list[Model]:
    x = _table()
    models = [
        _classifier(eval_metric=["multi_logloss", "mcc", "auc_ovr"]).fit(x, _grades(x), eval_set=[(x, _grades(x))]),
        _classifier(subsample=0.7, subsample_freq=1).fit(x, _grades(x), sample_weight=1.0 + (x[:, 0] > 0)),
        _classifier(objective="multiclassova").fit(x, _grades(x)),
    ]
    models[0].predict_proba(x)
    models[-1].predict_proba(x)
    return models


def _losses() -> list[Model]:
    x = _table()
    y = _target(x)
    models = []
    for objective in (*("regression", "regression_l1", "quantile", "poisson"), *("huber", "fair", "mape", "tweedie")):
        target = np.abs(y).round() if objective in ("poisson", "tweedie") else y
        for weight in (None, 1.0 + (x[:, 0] > 0)):
            model = _regressor(objective=objective, eval_metric=["rmse", "l1", "r2"])
            models.append(model.fit(x, target, sample_weight=weight, eval_set=[(x, target)]))
        models[-1].predict(x)
    models.append(_regressor(objective=lambda true, guess: (guess - true, np.ones_like(true))).fit(x, y))
    return models


def _survival_times() -> list[Model]:
    x = _table()
    times = np.exp(_target(x) / 4) * np.where(np.nan_to_num(x[:, 1]) > 0, -1.0, 1.0)
    models = [
        _regressor(objective=objective, eval_metric=[f"{objective}_nloglik", "c_index"]).fit(
            x, times, eval_set=[(x, times)]
        )
        for objective in ("cox", "aft")
    ]
    models[0].predict(x)
    return models


def _ranking() -> list[Model]:
    from dmlgbm import DMLGBMRanker

    x = _table()
    settings: Any = {"n_estimators": 3, "num_leaves": 9, "eval_metric": ["ndcg", "map", "mrr", "err"]}
    groups = [70] * 10
    watched = {"eval_set": [(x, _grades(x))], "eval_group": [groups]}
    return [
        DMLGBMRanker(objective=objective, **settings).fit(x, _grades(x), group=groups, **watched)
        for objective in ("lambdarank", "pairwise", "rank_xendcg")
    ]


def _categories() -> list[Model]:
    x = _table()
    y = _target(x)
    models = [
        _regressor(categorical_feature=[4]).fit(x, y),
        _regressor(categorical_feature=[4], max_cat_to_onehot=1, min_data_per_group=5).fit(x, y),
    ]
    for model in models:
        model.predict(x)
    return models


def _sparse() -> list[Model]:
    from scipy import sparse

    x = np.where(np.nan_to_num(_table()) > 0.9, np.nan_to_num(_table()), 0.0)
    models = []
    for matrix in (sparse.csr_matrix(x), sparse.csc_matrix(x), sparse.csr_array(x.astype("float32"))):
        models.append(_regressor().fit(matrix, _target(_table())))
        models[-1].predict(matrix)
    return models


def _settings() -> list[Model]:
    x = _table()
    y = _target(x)
    each: tuple[dict[str, Any], ...] = (
        {"subsample": 0.6, "subsample_freq": 1, "colsample_bytree": 0.7, "colsample_bynode": 0.6},
        {"max_bin": 15},
        {"max_bin": 400},
        {"precision": "exact"},
        {"grow_policy": "depthwise", "max_depth": 3},
        {"num_leaves": 400, "min_child_samples": 1},
        {"reg_alpha": 1.0, "min_split_gain": 0.1, "max_delta_step": 0.5},
        {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1},
        {"boosting_type": "dart", "drop_rate": 1.0, "skip_drop": 0.0},
        {"boosting_type": "goss", "learning_rate": 0.9},
        {"bootstrap_type": "bayesian"},
        {"bootstrap_type": "mvs", "subsample": 0.5},
        {"monotone_constraints": (1, *[0] * (x.shape[1] - 1))},
        {"interaction_constraints": "no_interactions"},
        {"extra_trees": True},
        {"path_smooth": 3.0, "feature_contri": (0.5, *[1.0] * (x.shape[1] - 1))},
    )
    models = [_regressor(**settings).fit(x, y) for settings in each]
    return [*models, _regressor().fit(x, y, init_model=models[0])]


def _functions() -> list[Model]:
    import dmlgbm

    x = _table()
    y = _target(x)
    data = dmlgbm.Dataset(x, y)
    dmlgbm.train({"num_leaves": 9}, data, 3, data).predict(x)
    dmlgbm.cv({"num_leaves": 9}, dmlgbm.Dataset(x, y), 2, nfold=2, eval_train_metric=True)
    return [
        _regressor().fit(x, y).refit(x[::2], y[::2]),
        _classifier().fit(x, _grades(x)).refit(x[::2], _grades(x)[::2]),
        _regressor(n_estimators=9, early_stopping=True, refit_after_stopping=True).fit(x, y),
    ]


def _searches() -> list[Model]:
    from dmlgbm import GridSearchCV

    x = _table()
    search = GridSearchCV(_regressor(), {"n_estimators": [2, 3], "num_leaves": [5, 9]}, cv=2, n_jobs=1)
    return [search.fit(x, _target(x)).best_estimator_]


def _networks() -> list[Model]:
    from dmlgbm import DMLMLPClassifier, DMLMLPRegressor

    x = np.nan_to_num(_table())
    DMLMLPClassifier(max_epochs=1).fit(x, _grades(x)).predict(x)
    DMLMLPRegressor(max_epochs=1).fit(x, _target(x)).predict(x)
    return []


def _dask() -> list[Model]:
    import dask.array as da
    from distributed import Client, LocalCluster

    table = _table()
    x, y = da.from_array(table, chunks=(200, -1)), da.from_array(_target(table), chunks=200)
    settings: dict[str, Any] = {"dashboard_address": None, "memory_limit": 0}
    with LocalCluster(n_workers=2, threads_per_worker=1, **settings) as cluster, Client(cluster):
        models = [_regressor(tree_learner=mode).fit(x, y) for mode in ("data", "feature", "voting")]
        models.append(_classifier(tree_learner="data").fit(x, (y > 1)))
        models[0].predict(x).compute()
    return models


KINDS: dict[str, Callable[[], list[Model]]] = {
    "layouts": _layouts,
    "threads": _threads,
    "two classes": _two_classes,
    "several classes": _several_classes,
    "losses": _losses,
    "survival times": _survival_times,
    "ranking": _ranking,
    "categories": _categories,
    "sparse": _sparse,
    "settings": _settings,
    "functions": _functions,
    "searches": _searches,
    "networks": _networks,
    "dask": _dask,
}


def main() -> None:
    """Fit, and tell."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dmlgbm").addHandler(handler)
    from dmlgbm.gbdt.machine_code.compilation_counts import compilation_counts

    digests, compiled, before = {}, {}, 0
    for kind in sys.argv[1:] or KINDS:
        digest = hashlib.sha256()
        for model in KINDS[kind]():
            digest.update(model.booster_.to_bytes())
        counts = compilation_counts()
        digests[kind], compiled[kind] = digest.hexdigest(), counts.compiled - before
        before = counts.compiled
    told = {"digests": digests, "compiled": compiled, "from_disk": counts.from_disk, "warnings": messages}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()

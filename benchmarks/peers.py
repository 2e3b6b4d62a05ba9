"""The one place that maps our parameters to every peer's, so that all systems grow the same kind of trees.

Each system answers four questions: which estimator serves a task, under which constructor parameters, in which form
it must be given a table, and which extra arguments `fit` takes. What `Settings` does not name stays at the system's own
default. Libraries are imported when an estimator is built, never before: the import is part of what is measured.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.tasks import Task

if TYPE_CHECKING:
    from benchmarks.datasets import Array, Features, Split

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """The parameters of the race, under our names."""

    n_estimators: int = 50
    num_leaves: int = 63
    learning_rate: float = 0.1
    max_bin: int = 255
    min_child_samples: int = 20
    threads: int = 2
    seed: int = 0


class NoSuchTaskError(Exception):
    """The system has no objective for a task."""


class System:
    """One competitor. Subclasses fill in what differs; anything they raise is published as a refusal."""

    title: ClassVar[str]
    package: ClassVar[str]
    estimators: ClassVar[dict[Task, str]]

    def parameters(self, settings: Settings, task: Task) -> Parameters:
        raise NotImplementedError

    def load(self) -> None:
        """Import the library as whoever uses an estimator does: some load most of themselves only then."""
        package = importlib.import_module(self.package)
        for estimator in self.estimators.values():
            getattr(package, estimator)

    def build(self, settings: Settings, task: Task) -> Any:
        if task not in self.estimators:
            raise NoSuchTaskError(f"{self.title} has no {task} objective")
        estimator = getattr(importlib.import_module(self.package), self.estimators[task])
        return estimator(**self.parameters(settings, task))

    def prepare(self, features: Features) -> Features:
        """The form of the table this system demands; made outside the clock."""
        return features

    def fit_arguments(self, split: Split) -> Parameters:
        arguments: Parameters = {} if split.weight is None else {"sample_weight": split.weight}
        return arguments if split.query is None else {**arguments, **self.query_arguments(split.query)}

    def query_arguments(self, query: Array) -> Parameters:
        return {"qid": query}

    def predict(self, model: Any, features: Features, settings: Settings, task: Task) -> Array:
        """Probabilities for classifiers, the mean for regressors, a score for rankers."""
        predict = model.predict_proba if task in ("binary", "multiclass") else model.predict
        result: Array = predict(features)
        return result


class Ours(System):
    title = "DMLGBM"
    package = "dmlgbm"
    estimators: ClassVar[dict[Task, str]] = {
        "binary": "DMLGBMClassifier",
        "multiclass": "DMLGBMClassifier",
        "regression": "DMLGBMRegressor",
        "poisson": "DMLGBMRegressor",
        "ranking": "DMLGBMRanker",
    }

    def parameters(self, settings: Settings, task: Task) -> Parameters:
        objective: Parameters = {"objective": "poisson"} if task == "poisson" else {}
        return objective | {
            "n_estimators": settings.n_estimators,
            "num_leaves": settings.num_leaves,
            "learning_rate": settings.learning_rate,
            "max_bin": settings.max_bin,
            "min_child_samples": settings.min_child_samples,
            "n_jobs": settings.threads,
            "random_state": settings.seed,
        }


class LightGBM(System):
    title = "LightGBM"
    package = "lightgbm"
    estimators: ClassVar[dict[Task, str]] = {
        "binary": "LGBMClassifier",
        "multiclass": "LGBMClassifier",
        "regression": "LGBMRegressor",
        "poisson": "LGBMRegressor",
        "ranking": "LGBMRanker",
    }

    def parameters(self, settings: Settings, task: Task) -> Parameters:
        objective: Parameters = {"objective": "poisson"} if task == "poisson" else {}
        return objective | {
            "n_estimators": settings.n_estimators,
            "num_leaves": settings.num_leaves,
            "learning_rate": settings.learning_rate,
            "max_bin": settings.max_bin,
            "min_child_samples": settings.min_child_samples,
            "n_jobs": settings.threads,
            "random_state": settings.seed,
            "verbosity": -1,
        }

    def query_arguments(self, query: Array) -> Parameters:
        import numpy as np

        return {"group": np.unique(query, return_counts=True)[1]}


class LightGBMQuantised(LightGBM):
    title = "LightGBM quantised"

    def parameters(self, settings: Settings, task: Task) -> Parameters:
        return super().parameters(settings, task) | {"use_quantized_grad": True}


class XGBoost(System):
    title = "XGBoost"
    package = "xgboost"
    estimators: ClassVar[dict[Task, str]] = {
        "binary": "XGBClassifier",
        "multiclass": "XGBClassifier",
        "regression": "XGBRegressor",
        "poisson": "XGBRegressor",
        "ranking": "XGBRanker",
    }

    def parameters(self, settings: Settings, task: Task) -> Parameters:
        parameters: Parameters = {
            "n_estimators": settings.n_estimators,
            "max_leaves": settings.num_leaves,
            "max_depth": 0,
            "grow_policy": "lossguide",
            "tree_method": "hist",
            "learning_rate": settings.learning_rate,
            "max_bin": settings.max_bin,
            "enable_categorical": True,
            "n_jobs": settings.threads,
            "random_state": settings.seed,
        }
        if task == "regression":
            # A row's hessian is 1 here, so the weight of a child is its number of rows; elsewhere nothing corresponds.
            parameters["min_child_weight"] = settings.min_child_samples
        if task == "poisson":
            parameters["objective"] = "count:poisson"
        return parameters


class CatBoost(System):
    title = "CatBoost"
    package = "catboost"
    estimators: ClassVar[dict[Task, str]] = {
        "binary": "CatBoostClassifier",
        "multiclass": "CatBoostClassifier",
        "regression": "CatBoostRegressor",
        "poisson": "CatBoostRegressor",
        "ranking": "CatBoostRanker",
    }
    missing_category: ClassVar[str] = "(missing)"
    deepest_tree: ClassVar[int] = 16

    def parameters(self, settings: Settings, task: Task) -> Parameters:
        losses: dict[Task, str] = {"poisson": "Poisson", "ranking": "LambdaMart"}
        objective: Parameters = {"loss_function": losses[task]} if task in losses else {}
        return objective | {
            "n_estimators": settings.n_estimators,
            "grow_policy": "Lossguide",
            "max_leaves": settings.num_leaves,
            "depth": self.deepest_tree,
            "learning_rate": settings.learning_rate,
            "border_count": settings.max_bin - 1,
            "min_data_in_leaf": settings.min_child_samples,
            "thread_count": settings.threads,
            "random_seed": settings.seed,
            "allow_writing_files": False,
            "verbose": False,
        }

    def prepare(self, features: Features) -> Features:
        """CatBoost wants a word for a missing category."""
        import pandas as pd

        if not isinstance(features, pd.DataFrame):
            return features
        incomplete = [name for name in _categorical_columns(features) if features[name].hasnans]
        named = {
            name: features[name].cat.add_categories([self.missing_category]).fillna(self.missing_category)
            for name in incomplete
        }
        return features.assign(**named)

    def fit_arguments(self, split: Split) -> Parameters:
        return super().fit_arguments(split) | {"cat_features": _categorical_columns(split.features)}

    def query_arguments(self, query: Array) -> Parameters:
        return {"group_id": query}

    def predict(self, model: Any, features: Features, settings: Settings, task: Task) -> Array:
        predict = model.predict_proba if task in ("binary", "multiclass") else model.predict
        result: Array = predict(features, thread_count=settings.threads)
        return result


class HistGradientBoosting(System):
    """Takes its number of threads from OpenMP, which `measure` sets before anything is imported."""

    title = "scikit-learn HGB"
    package = "sklearn.ensemble"
    estimators: ClassVar[dict[Task, str]] = {
        "binary": "HistGradientBoostingClassifier",
        "multiclass": "HistGradientBoostingClassifier",
        "regression": "HistGradientBoostingRegressor",
        "poisson": "HistGradientBoostingRegressor",
    }

    def parameters(self, settings: Settings, task: Task) -> Parameters:
        objective: Parameters = {"loss": "poisson"} if task == "poisson" else {}
        return objective | {
            "max_iter": settings.n_estimators,
            "max_leaf_nodes": settings.num_leaves,
            "learning_rate": settings.learning_rate,
            "max_bins": settings.max_bin,
            "min_samples_leaf": settings.min_child_samples,
            "random_state": settings.seed,
            "early_stopping": False,
            "categorical_features": "from_dtype",
        }


def _categorical_columns(features: Features) -> list[str]:
    import pandas as pd

    if not isinstance(features, pd.DataFrame):
        return []
    return [str(name) for name, dtype in features.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)]


OURS = "ours"
SYSTEMS: dict[str, System] = {
    OURS: Ours(),
    "lightgbm": LightGBM(),
    "lightgbm_quantised": LightGBMQuantised(),
    "xgboost": XGBoost(),
    "catboost": CatBoost(),
    "hgb": HistGradientBoosting(),
}
PEERS = tuple(name for name in SYSTEMS if name != OURS)

"""What is watched while a model learns: the evaluation sets of `fit` and the metrics of `eval_metric`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.metrics import Metric, default_metric
from dmlgbm.gbdt.objectives import transform
from dmlgbm.sklearn_api.rows.given_rows import GivenRows
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray
from dmlgbm.sklearn_api.watching.metric_functions import user_metrics
from dmlgbm.sklearn_api.watching.scoring import WatchedModel, is_scorer

# Names that mean one metric for two classes and another for more.
_FOR_SEVERAL_CLASSES = {"logloss": "multi_logloss", "log_loss": "multi_logloss", "error": "multi_error"}


@dataclass(frozen=True)
class GivenSet:
    """One evaluation set as the user passed it."""

    name: str
    rows: GivenRows


def given_sets(
    eval_set: Any,
    eval_names: Any,
    eval_sample_weight: Any,
    eval_init_score: Any,
    eval_group: Any = None,
    eval_qid: Any = None,
) -> list[GivenSet]:
    """The evaluation sets of a call of `fit`: a list of (X, y), or a single pair."""
    pairs = _pairs(eval_set)
    n_sets = len(pairs)
    names = [f"valid_{number}" for number in range(n_sets)] if eval_names is None else _names(eval_names, n_sets)
    weights = _one_for_each_set(eval_sample_weight, n_sets, "eval_sample_weight")
    scores = _one_for_each_set(eval_init_score, n_sets, "eval_init_score")
    groups = _one_for_each_set(eval_group, n_sets, "eval_group")
    ids = _one_for_each_set(eval_qid, n_sets, "eval_qid")
    return [
        GivenSet(names[k], GivenRows(*pairs[k], weights[k], scores[k], groups[k], ids[k], f"eval_set[{k}]"))
        for k in range(n_sets)
    ]


def watched_metrics(eval_metric: Any, model: WatchedModel, example: Callable[[], Rows]) -> list[Metric]:
    """The metrics to evaluate, in the order given; `example` gives rows of the first evaluation set."""
    objective = model.objective
    if eval_metric is None:
        eval_metric = [] if objective.name == "custom" else [default_metric(objective.name)]
    elif isinstance(eval_metric, str) or callable(eval_metric):
        eval_metric = [eval_metric]
    if not isinstance(eval_metric, Sequence):
        raise TypeError(f"eval_metric must be a name, a function or a list of them, got {eval_metric!r}.")
    n_outputs = objective.n_outputs
    metrics: dict[str, Metric] = {}
    for entry in eval_metric:
        if is_scorer(entry):
            found = [model.metric_of(entry)]
            _require_new_names([] if isinstance(entry, str) else found, metrics)
        elif callable(entry):
            classifies = objective.n_classes > 1
            found = user_metrics(entry, n_outputs, classifies, example())
            _require_new_names(found, metrics)
        else:
            name: Any = _FOR_SEVERAL_CLASSES.get(entry, entry) if n_outputs > 1 else entry
            found = model.metrics_named([name])
            model.require_fit(found)
        metrics.update((metric.name, metric) for metric in found if metric.name not in metrics)
    return list(metrics.values())


def on_probabilities(metric: Metric, transformation: str) -> Metric:
    """A metric for the raw scores of a classifier's own objective: it sees probabilities, as all metrics do."""
    if metric.of_raw_scores:
        return metric

    def function(
        target: FloatArray, score: FloatArray, weight: FloatArray | None, group_starts: IntArray | None
    ) -> float:
        probability = transform(transformation, np.atleast_2d(score))
        return metric.function(target, probability if score.ndim == 2 else probability[0], weight, group_starts)

    return replace(metric, function=function)


def _require_new_names(found: Sequence[Metric], known: Mapping[str, Metric]) -> None:
    """Of two functions of one name, the values of one would be lost."""
    for metric in found:
        if metric.name in known:
            raise ValueError(f"eval_metric lists two metrics that are called {metric.name!r}: name them differently.")


def _pairs(eval_set: Any) -> list[tuple[Any, Any]]:
    if eval_set is None:
        return []
    pairs = [eval_set] if isinstance(eval_set, tuple) else eval_set
    if not isinstance(pairs, list):
        raise TypeError(f"eval_set must be a list of (X, y) pairs, got a {type(eval_set).__name__}.")
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"eval_set[{number}] must be a pair (X, y).")
    return [(pair[0], pair[1]) for pair in pairs]


def _names(eval_names: Any, n_sets: int) -> list[str]:
    names = [eval_names] if isinstance(eval_names, str) else list(eval_names)
    if len(names) != n_sets or not all(isinstance(name, str) for name in names) or len(set(names)) < n_sets:
        raise ValueError(f"eval_names must hold {n_sets} different names, one for each evaluation set, got {names!r}.")
    return names


def _one_for_each_set(given: Any, n_sets: int, name: str) -> list[Any]:
    """A list with an entry for each set; for a single set, the entry itself will do."""
    if given is None:
        return [None] * n_sets
    is_list = isinstance(given, list | tuple) and all(
        entry is None or isinstance(entry, str) or np.ndim(entry) > 0 for entry in given
    )
    entries = list(given) if is_list else [given]
    if len(entries) != n_sets:
        raise ValueError(f"{name} has {len(entries)} entries for {n_sets} evaluation sets: pass one for each set.")
    return entries

"""Results of calls that did not run to their end: stopped searches and workers that were lost again and again."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgbm.tuning.calls import FitCall, FitResult, SearchData


class WorkerLostError(RuntimeError):
    """A fit has cost so many workers that it is not tried again."""


def not_run_result(call: FitCall, data: SearchData, example: FitResult | None) -> FitResult:
    """No score: the search was stopped before this call. `example` shows the names of a callable's scores."""
    return _scored(call, data, np.nan, None, example)


def lost_result(call: FitCall, data: SearchData, reasons: Sequence[str]) -> FitResult | WorkerLostError:
    """A fit that costs its workers counts as a failed fit: `error_score` says what becomes of it."""
    message = (
        f"Candidate {call.candidate} ({call.parameters}) on fold {call.fold} was given up after {len(reasons)} lost "
        f"workers: {'; '.join(reasons)}. If memory ran out, use fewer jobs or a smaller candidate."
    )
    error_score = data.shared.arguments.get("error_score", np.nan)
    if not isinstance(error_score, numbers.Number):
        return WorkerLostError(message)
    return _scored(call, data, error_score, message, None)


def _scored(call: FitCall, data: SearchData, score: Any, error: str | None, example: FitResult | None) -> FitResult:
    arguments = data.shared.arguments
    _, test = data.splits[call.split]
    names = _score_names(arguments["scorer"], example)
    scores = score if names is None else dict.fromkeys(names, score)
    result: FitResult = {"fit_error": error, "test_scores": scores}
    if arguments.get("return_train_score"):
        result["train_scores"] = scores if names is None else dict(scores)
    if arguments.get("return_n_test_samples"):
        result["n_test_samples"] = len(test)
    if arguments.get("return_times"):
        result["fit_time"] = result["score_time"] = np.nan
    if arguments.get("return_parameters"):
        result["parameters"] = call.parameters
    if arguments.get("return_estimator"):
        result["estimator"] = None
    return result


def _score_names(scorer: Any, example: FitResult | None) -> list[str] | None:
    """The names of several scores; None for a single one."""
    if hasattr(scorer, "_scorers"):
        return list(scorer._scorers)
    known = None if example is None else example["test_scores"]
    return list(known) if isinstance(known, dict) else None

"""Why a search shares less than it could, for `search_report_`."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from dmlgbm.tuning.calls import FitCall, SearchData
from dmlgbm.tuning.sharing.hooks import has_hooks
from dmlgbm.tuning.sharing.prefixes import is_plain_pipeline, why_step_is_fitted_anew


def notes_on_sharing(call: FitCall, data: SearchData) -> list[str]:
    """What keeps fits like this one from sharing work; empty where nothing does, or nothing can be shared at all."""
    try:
        parts = [data.shared.estimator, *data.shared.estimator.get_params(deep=True).values()]
        if not any(map(_could_share, [*parts, *(call.parameters or {}).values()])):
            return []  # somebody's estimator, which may keep count of its copies and parameters
        estimator = clone(data.shared.estimator)
        if call.parameters is not None:
            estimator.set_params(**clone(dict(call.parameters), safe=False))
        notes = _notes(estimator, data.shared.arguments.get("fit_params") or {})
    except Exception:  # noqa: BLE001 - parameters that cannot be set: the call itself says so
        return []
    if call.own_arguments.get("callback_ctx") is not None:
        notes.append("nothing is shared: callbacks of scikit-learn see every fit")
    return [f"Work sharing: {note}." for note in notes]


def _could_share(value: Any) -> bool:
    return has_hooks(value) or is_plain_pipeline(value)


def _notes(estimator: Any, fit_params: dict[str, Any]) -> list[str]:
    if is_plain_pipeline(estimator):
        why = why_step_is_fitted_anew(estimator)
        if why is not None:
            return [f"steps of the Pipeline are fitted for every candidate: {why}"]
        return _notes(estimator.steps[-1][1], {})
    if has_hooks(estimator):
        told = getattr(estimator, "why_not_shared", None)
        reason = told(**fit_params) if callable(told) else None
        return [] if reason is None else [reason]
    inner = next((each for each in estimator.get_params(deep=True).values() if has_hooks(each)), None)
    if inner is None:
        return []
    outer, name = type(estimator).__name__, type(inner).__name__
    return [f"{outer} fits copies of {name} itself, so that candidates share nothing"]

"""Rows that the client prepares once for all workers, where the backend brings values to each machine only once.

Elsewhere every worker prepares the folds it works on: it has the rows anyway, and that is quicker than sending bins.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params

from dmlgbm.tuning.calls import SearchData
from dmlgbm.tuning.plan import WorkUnit


def prepared_for(unit: WorkUnit, data: SearchData) -> Any:
    """What all calls of a unit learn from; None if it must not leave this process."""
    call, shared = unit.calls[0], data.shared
    estimator = clone(shared.estimator)
    if call.parameters is not None:
        estimator.set_params(**clone(dict(call.parameters), safe=False))
    train = data.splits[call.split][0]
    fit_params = _check_method_params(shared.X, params=shared.arguments.get("fit_params"), indices=train)
    prepared = estimator.prepare(*_safe_split(estimator, shared.X, shared.y, train), **fit_params)
    return None if getattr(prepared, "stays_in_process", False) else prepared

"""The plan of a round: stages of one run in one unit, units of one fold near each other.

A unit is as small as sharing allows: the stages of one run (a candidate without its `n_estimators`, on one fold), or
one call. Everything else that calls have in common is found through the memory of the worker, so units name, as
affinity, the prepared rows they want; where there are more workers than such rows, several groups of units want the
same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sklearn.base import clone

from dmlgbm.tuning.calls import FitCall, SearchData
from dmlgbm.tuning.plan import WorkUnit, plan_singly
from dmlgbm.tuning.sharing.hooks import FitDescription, content_key, described, has_hooks
from dmlgbm.tuning.sharing.prefixes import is_plain_pipeline, prefix_keys
from dmlgbm.tuning.sharing.shared_fit import run_sharing, run_sharing_and_keep


def can_share(estimator: Any) -> bool:
    """Whether a plan for this estimator may differ from the plain one."""
    return has_hooks(estimator) or is_plain_pipeline(estimator)


def plan_sharing(calls: Sequence[FitCall], data: SearchData, n_slots: int) -> list[WorkUnit]:
    """Units for calls of an estimator that can share."""
    if any(call.own_arguments.get("callback_ctx") is not None for call in calls):
        return plan_singly(calls, data, n_slots)  # callbacks see every fit
    candidates: dict[int, _CandidateWork] = {}
    groups: dict[Hashable, _Group] = {}
    for call in calls:
        if id(call.parameters) not in candidates:
            candidates[id(call.parameters)] = _work_of(call.parameters, data)
        work = candidates[id(call.parameters)]
        key: Hashable = call.number
        if work.fit is not None and work.fit.run is not None:
            key = (call.split, work.rows, work.fit.preparation, work.fit.run)
        groups.setdefault(key, []).append((call, work))
    if not any(work.has_something_to_share for work in candidates.values()):
        return plan_singly(calls, data, n_slots)
    parts = _Parts(list(groups.values()), n_slots)
    planned_before: set[Hashable] = data.memory.setdefault("runs planned", set())
    runner = run_sharing_and_keep if _may_go_on(calls, candidates) else run_sharing
    planned = [
        (
            _longest(group),
            WorkUnit(
                tuple(call for call, _ in _by_length(group)),
                runner,
                parts.affinity(group),
                goes_on=key in planned_before,
                prepared=_prepared_rows(group),
            ),
        )
        for key, group in groups.items()
    ]
    if runner is run_sharing_and_keep:
        planned_before.update(groups)
    return [unit for _, unit in sorted(planned, key=lambda each: -each[0])]


@dataclass(frozen=True)
class _CandidateWork:
    """What the fits of one candidate can share on a fold."""

    rows: str | None
    """A name of the pipeline steps before the last; empty without a pipeline, None if nothing is known of them."""
    fit: FitDescription | None

    @property
    def has_something_to_share(self) -> bool:
        return self.fit is not None or bool(self.rows)

    @property
    def stage(self) -> int:
        return 0 if self.fit is None else self.fit.stage


_NOTHING = _CandidateWork(None, None)
_Group: TypeAlias = list[tuple[FitCall, _CandidateWork]]


def _work_of(parameters: Mapping[str, Any] | None, data: SearchData) -> _CandidateWork:
    try:
        estimator = clone(data.shared.estimator)
        if parameters is not None:
            estimator.set_params(**clone(dict(parameters), safe=False))
        if not is_plain_pipeline(estimator):
            return _CandidateWork("", described(estimator, data.shared.arguments.get("fit_params") or {}))
        return _work_of_pipeline(estimator)
    except Exception:  # noqa: BLE001 - parameters that cannot be set: the call itself says so
        return _NOTHING


def _work_of_pipeline(pipeline: Any) -> _CandidateWork:
    """The steps before the last, which may be a Pipeline itself, one after the other as long as they can be shared."""
    shared_steps: list[str] = []
    final = pipeline
    while is_plain_pipeline(final):
        keys = prefix_keys(final)
        shared_steps += [key for key in keys if key is not None][-1:]
        if keys and keys[-1] is None:
            return _CandidateWork(" ".join(shared_steps) or None, None)
        final = final.steps[-1][1]
    return _CandidateWork(" ".join(shared_steps), described(final, {}))


def _may_go_on(calls: Sequence[FitCall], candidates: Mapping[int, _CandidateWork]) -> bool:
    """Whether a later round may ask for more of the same runs: only if all candidates were given one length now."""
    lengths = {work.stage for work in candidates.values()}
    fits = [work.fit for work in candidates.values() if work.fit is not None]
    given = all(_names_length(call.parameters, candidates[id(call.parameters)]) for call in calls)
    return bool(fits) and len(lengths) == 1 and given


def _names_length(parameters: Mapping[str, Any] | None, work: _CandidateWork) -> bool:
    """Whether the length of the run comes from the candidate, under whatever name."""
    values = [value for value in (parameters or {}).values() if isinstance(value, int)]
    return work.fit is not None and work.fit.run is not None and work.stage in values


def _prepared_rows(group: _Group) -> tuple[str, str] | None:
    """The name under which the calls of a group look for prepared rows; None behind a pipeline."""
    call, work = group[0]
    return (call.split, work.fit.preparation) if work.fit is not None and work.rows == "" else None


def _by_length(group: _Group) -> _Group:
    return sorted(group, key=lambda each: (each[1].stage, each[0].number))


def _longest(group: _Group) -> int:
    return max(work.stage for _, work in group)


class _Parts:
    """Cuts the units that want the same rows into parts, so that every worker has a share of its own."""

    def __init__(self, groups: Sequence[_Group], n_slots: int) -> None:
        labels = dict.fromkeys(self._label(group) for group in groups)
        n_even = len(labels) - len(labels) % n_slots
        n_parts = n_slots if n_even else -(-n_slots // len(labels))
        self._n_parts = {label: 1 if position < n_even else n_parts for position, label in enumerate(labels)}

    def affinity(self, group: _Group) -> Hashable:
        """The same for a run in all rounds, as long as there are as many folds and workers."""
        label = self._label(group)
        _, work = group[0]
        name = (
            work.fit.run if work.fit is not None and work.fit.run is not None else content_key(group[0][0].parameters)
        )
        part = int(name or "0", 16) % self._n_parts[label]
        return (*label, part)

    def _label(self, group: _Group) -> tuple[str, str, str]:
        call, work = group[0]
        return call.split, work.rows or "", "" if work.fit is None else work.fit.preparation

"""Classification, regression or ranking: said by the user, by the objective, or guessed from the target."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from dmlgbm.command_line.text_columns import is_text

TaskName = Literal["classification", "regression", "ranking"]

_MOST_CLASSES_OF_NUMBERS = 20


class Task(NamedTuple):
    """What is to be learnt, and why we think so."""

    name: TaskName
    reason: str


def known_task(asked: str, objective: Any, query: str | None) -> Task | None:
    """The task, if it can be told without looking at the target."""
    from dmlgbm.gbdt.objectives.factory import CLASSIFIER_OBJECTIVES, RANKER_OBJECTIVES, REGRESSOR_OBJECTIVES
    from dmlgbm.sklearn_api.parameters.values import OBJECTIVE_ALIASES

    tasks: dict[str, TaskName] = {
        **dict.fromkeys((*CLASSIFIER_OBJECTIVES, "log_loss"), "classification"),
        **dict.fromkeys(REGRESSOR_OBJECTIVES, "regression"),
        **dict.fromkeys(RANKER_OBJECTIVES, "ranking"),
    }
    named = tasks.get(OBJECTIVE_ALIASES.get(objective, objective)) if isinstance(objective, str) else None
    task = None
    if asked != "auto":
        task = Task(asked, "as asked")  # type: ignore[arg-type]
    elif named is not None:
        task = Task(named, f"because of objective={objective}")
    elif query is not None:
        task = Task("ranking", f"because column {query!r} says which rows form a query")
    if task is None:
        return None
    if task.name == "ranking" and query is None:
        raise ValueError("Ranking needs --qid, the column that says which rows form a query.")
    if task.name != "ranking" and query is not None:
        raise ValueError(f"--qid {query} is for ranking, but the task is {task.name} {task.reason}: leave one out.")
    return task


def guessed_task(target: Any) -> Task:
    """Text, flags and few distinct whole numbers are classes."""
    import pyarrow as pa
    from pyarrow import compute

    if is_text(target) or pa.types.is_dictionary(target.type):
        return Task("classification", "because the target is text")
    if pa.types.is_boolean(target.type):
        return Task("classification", "because the target is true or false")
    distinct = compute.drop_null(target.unique())
    values = distinct.to_pylist() if len(distinct) <= _MOST_CLASSES_OF_NUMBERS else []
    if values and all(value == value // 1 for value in values):
        return Task("classification", f"because the target holds {len(values)} distinct whole numbers")
    return Task("regression", f"because the target holds {len(distinct):,} distinct numbers")

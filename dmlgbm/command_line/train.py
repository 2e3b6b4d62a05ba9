"""`dmlgbm train`: from a table to a model file."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlgbm.command_line import csv_format
from dmlgbm.command_line.console import Console, plural, size_text
from dmlgbm.command_line.parameter_arguments import parameter, parameters_from

if TYPE_CHECKING:
    from dmlgbm.command_line.task import Task
    from dmlgbm.sklearn_api.rows.given_rows import GivenRows

SUMMARY = "Train a model on a CSV or Parquet file."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="CSV or Parquet file to learn from")
    parser.add_argument("--target", required=True, metavar="COL", help="column to predict")
    parser.add_argument("--out", required=True, metavar="FILE", help="model file to write")
    parser.add_argument("--task", choices=("auto", "classification", "regression", "ranking"), default="auto")
    parser.add_argument(
        "--qid", "--group", dest="query", metavar="COL", help="column that tells the queries of a ranking apart"
    )
    parser.add_argument("--weight", metavar="COL", help="column with the weight of each row")
    parser.add_argument(
        "--position", metavar="COL", help="column with the place at which each row of a ranking was shown"
    )
    parser.add_argument("--drop", nargs="+", action="extend", default=[], metavar="COL", help="columns to leave out")
    parser.add_argument(
        "--categorical", nargs="+", action="extend", default=[], metavar="COL",
        help="columns of whole numbers to treat as categories; text columns are so by themselves",
    )  # fmt: skip
    watched = parser.add_mutually_exclusive_group()
    watched.add_argument("--valid", metavar="FILE", help="file to watch: training stops when it no longer improves")
    watched.add_argument(
        "--validation-fraction", type=float, metavar="SHARE", help="share of the rows to set aside and watch instead"
    )
    parser.add_argument(
        "-p", "--param", dest="parameters", type=parameter, action="append", default=[], metavar="NAME=VALUE",
        help="any parameter of the estimator, such as -p num_leaves=63",
    )  # fmt: skip
    parser.add_argument("--params", dest="parameter_file", metavar="FILE", help="JSON object of parameters; -p wins")
    csv_format.add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors and warnings")


def run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    from dmlgbm.command_line.tables import TableFile, require_writable
    from dmlgbm.command_line.task import known_task

    require_writable(arguments.out)
    parameters = parameters_from(arguments.parameter_file, arguments.parameters)
    task = known_task(arguments.task, parameters.get("objective"), arguments.query)
    if arguments.position is not None and (task is None or task.name != "ranking"):
        raise ValueError("--position is for ranking: name the column of queries with --qid, or leave it out.")
    if task is not None:
        # A wrong parameter should not cost the time to read the data; without a task it is found after that.
        _estimator(task.name, parameters, arguments)
    started = time.perf_counter()
    task, rows, valid = _read(arguments, task)
    model = _estimator(task.name, parameters, arguments)
    read = time.perf_counter()
    n_rows, n_features = rows.X.num_rows, rows.X.num_columns
    described = TableFile(arguments.data, csv_format.named_format(arguments)).described
    console.say(f"{described}: {plural(n_rows, 'row')}, {plural(n_features, 'feature')}, target {arguments.target!r}")
    console.say(f"task: {task.name}, {task.reason}")
    model.fit(rows.X, rows.y, **_fit_arguments(rows, valid, console))
    fitted = time.perf_counter()
    model.save_model(arguments.out)
    result = {
        "command": "train",
        "data": arguments.data,
        "task": task.name,
        "reason": task.reason,
        "rows": n_rows,
        "features": n_features,
        "iterations": model.n_iter_,
        "best_iteration": model.best_iteration_,
        "trees": len(model.booster_.trees),
        "watched": _watched_set(model),
        "metrics": _metrics(model),
        "seconds": {"read": read - started, "fit": fitted - read, "save": time.perf_counter() - fitted},
        "model": arguments.out,
        "bytes": Path(arguments.out).stat().st_size,
    }
    _summarise(result, console)
    return result


def _read(arguments: argparse.Namespace, task: Task | None) -> tuple[Task, GivenRows, GivenRows | None]:
    """What to learn, the rows to learn from and the rows of --valid."""
    from dmlgbm.command_line.tables import TableFile
    from dmlgbm.command_line.task import guessed_task
    from dmlgbm.command_line.training_rows import ColumnRoles, given_rows, read_table_like, read_training_table

    roles = ColumnRoles(
        arguments.target,
        arguments.weight,
        arguments.query,
        tuple(arguments.drop),
        tuple(arguments.categorical),
        arguments.position,
    )
    target_is_text = task is not None and task.name == "classification"
    file = TableFile(arguments.data, csv_format.named_format(arguments))
    table = read_training_table(file, roles, target_is_text=target_is_text)
    task = task or guessed_task(table[roles.target])
    classify = task.name == "classification"
    rows = given_rows(table, file, roles, classify=classify)
    if arguments.valid is None:
        return task, rows, None
    valid_file = TableFile(arguments.valid, file.named)
    if roles.position is not None:  # metrics ask for no positions
        table, roles = table.drop_columns([roles.position]), replace(roles, position=None)
    valid_table = read_table_like(valid_file, table, roles)
    return task, rows, given_rows(valid_table, valid_file, roles, classify=classify)


def _estimator(task: str, parameters: dict[str, Any], arguments: argparse.Namespace) -> Any:
    import dmlgbm
    from dmlgbm.sklearn_api.parameters.values import engine_parameters

    estimator_class = {
        "classification": dmlgbm.DMLGBMClassifier,
        "regression": dmlgbm.DMLGBMRegressor,
        "ranking": dmlgbm.DMLGBMRanker,
    }[task]
    from_options: dict[str, Any] = {}
    if arguments.categorical:
        from_options["categorical_feature"] = list(arguments.categorical)
    if arguments.valid is not None or arguments.validation_fraction is not None:
        from_options["early_stopping"] = True
    if arguments.validation_fraction is not None:
        from_options["validation_fraction"] = arguments.validation_fraction
    for name in from_options.keys() & parameters.keys() - {"early_stopping"}:
        raise ValueError(f"{name} is given as a parameter and as an option: keep one of them.")
    estimator = estimator_class(**{**from_options, **parameters})
    engine_parameters(estimator.get_params(deep=False))
    return estimator


def _fit_arguments(rows: GivenRows, valid: GivenRows | None, console: Console) -> dict[str, Any]:
    from dmlgbm.gbdt.callbacks import progress_bar

    arguments: dict[str, Any] = {"sample_weight": rows.sample_weight}
    if console.shows_progress:
        arguments["callbacks"] = [progress_bar()]
    if rows.qid is not None:
        arguments["qid"] = rows.qid
    if rows.position is not None:
        arguments["position"] = rows.position
    if valid is not None:
        arguments |= {"eval_set": [(valid.X, valid.y)], "eval_names": ["validation"]}
        if valid.sample_weight is not None:
            arguments["eval_sample_weight"] = [valid.sample_weight]
        if valid.qid is not None:
            arguments["eval_qid"] = [valid.qid]
    return arguments


def _metrics(model: Any) -> dict[str, float]:
    """What the watched rows said of the model as it predicts: at the best iteration, or at the last one."""
    watched = _watched_set(model)
    if watched is None:
        return {}
    if model.best_score_ is not None:
        return dict(model.best_score_[watched])
    return {name: values[-1] for name, values in model.evals_result_[watched].items()}


def _watched_set(model: Any) -> str | None:
    """The one set that was watched: "validation", or "training" where no rows were to be set aside."""
    return next(iter(model.evals_result_), None)


def _summarise(result: dict[str, Any], console: Console) -> None:
    best = result["best_iteration"]
    kept = "" if best is None else f", of which the first {best} are best and used"
    console.say(
        f"trained {plural(result['iterations'], 'iteration')} ({plural(result['trees'], 'tree')}) in "
        f"{result['seconds']['fit']:.2f} s{kept}"
    )
    for name, value in result["metrics"].items():
        console.say(f"{result['watched']} {name}: {value:.6g}")
    console.say(f"saved {result['model']} ({size_text(result['bytes'])})")

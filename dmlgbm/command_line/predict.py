"""`dmlgbm predict`: from a model file and a table to a table of predictions."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from dmlgbm.command_line import csv_format
from dmlgbm.command_line.console import Console, plural, visible

if TYPE_CHECKING:
    from dmlgbm.command_line.tables import TableFile

SUMMARY = "Predict the rows of a CSV or Parquet file."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="model file written by dmlgbm train or save_model")
    parser.add_argument("data", metavar="DATA", help="CSV or Parquet file; columns that the model lacks are ignored")
    parser.add_argument("--out", required=True, metavar="FILE", help="CSV or Parquet file to write, or - for stdout")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--proba", action="store_true", help="write the probability of each class")
    kind.add_argument("--raw", action="store_true", help="write the scores before the link function")
    parser.add_argument("--keep", nargs="+", action="extend", default=[], metavar="COL", help="columns to copy over")
    parser.add_argument(
        "--formulas", choices=("escape", "keep"), default="escape",
        help="what to do in CSV files with text that a spreadsheet would run: put ' before it, or write it as it is",
    )  # fmt: skip
    csv_format.add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors and warnings")


def run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    import dmlgbm
    from dmlgbm.command_line import tables
    from dmlgbm.command_line.spreadsheet_text import without_formulas

    if arguments.out == "-" and arguments.json:
        raise ValueError("--out - and --json both want stdout: write the predictions to a file.")
    if arguments.out != "-":
        tables.is_csv(arguments.out)
    tables.require_writable(arguments.out)
    started = time.perf_counter()
    model = dmlgbm.load_model(arguments.model)
    if arguments.proba and not hasattr(model, "predict_proba"):
        raise ValueError(f"--proba is for classifiers, but {arguments.model} holds a {type(model).__name__}.")
    file = tables.TableFile(arguments.data, csv_format.named_format(arguments))
    features, kept = _read(model.booster_, file, arguments.keep)
    read = time.perf_counter()
    predictions = _predictions(model, features, arguments)
    predicted = time.perf_counter()
    table = _joined(kept, predictions)
    if arguments.formulas == "escape" and (arguments.out == "-" or tables.is_csv(arguments.out)):
        table = without_formulas(table)
    tables.write_table(table, arguments.out)
    written = time.perf_counter()
    console.say(
        f"{file.described}: predicted {plural(table.num_rows, 'row')} in {predicted - read:.3f} s, "
        f"wrote {', '.join(map(visible, table.column_names))} to {'stdout' if arguments.out == '-' else arguments.out}"
    )
    return {
        "command": "predict",
        "model": arguments.model,
        "data": arguments.data,
        "rows": table.num_rows,
        "columns": table.column_names,
        "seconds": {"read": read - started, "predict": predicted - read, "write": written - predicted},
        "out": arguments.out,
    }


def _read(booster: Any, file: TableFile, keep: list[str]) -> tuple[Any, Any]:
    """The features in the model's order and kinds, and the columns to keep."""
    from dmlgbm.command_line import text_columns
    from dmlgbm.command_line.training_rows import require_column

    names, path = file.column_names(), file.path
    for name in keep:
        require_column(name, names, path, "--keep")
    features = booster.feature_names
    if features is None:
        # Columns can only be matched by position, so there must be no doubt about which ones are meant.
        features = [name for name in names if name not in keep]
        if len(features) != booster.n_features:
            raise ValueError(
                f"The model was trained without column names on {plural(booster.n_features, 'column')}, but {path} has "
                f"{len(features)} besides those of --keep: give it exactly the columns of the training table."
            )
    else:
        for name in features:
            require_column(name, names, path)
    kinds = list(zip(features, booster.categories, strict=True))
    text = {name for name, known in kinds if known is not None and all(isinstance(value, str) for value in known)}
    table = file.read_columns(list(dict.fromkeys([*features, *keep])), text_columns=text)
    kept = table.select(list(dict.fromkeys(keep)))
    if file.is_csv:
        table = text_columns.with_numbers(table, [name for name in features if name not in text], file)
    return table.select(list(features)), kept


def _predictions(model: Any, features: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """The columns to write, by name."""
    if arguments.proba:
        return _by_class("probability", model.classes_, model.predict_proba(features))
    if not arguments.raw:
        return {"prediction": model.predict(features)}
    scores = model.predict(features, raw_score=True)
    return {"raw_score": scores} if scores.ndim == 1 else _by_class("raw_score", model.classes_, scores)


def _by_class(name: str, classes: Any, values: Any) -> dict[str, Any]:
    return {f"{name}_{label}": values[:, number] for number, label in enumerate(classes.tolist())}


def _joined(kept: Any, predictions: dict[str, Any]) -> Any:
    import pyarrow as pa

    taken = [name for name in predictions if name in kept.column_names]
    if taken:
        raise ValueError(f"--keep {taken[0]} would have the name of a column of predictions: rename it in the file.")
    # pyarrow does not read numpy's own strings.
    columns = {
        name: pa.array(values.tolist() if values.dtype.kind in "OU" else values) for name, values in predictions.items()
    }
    return pa.table({**dict(zip(kept.column_names, kept.columns, strict=True)), **columns})

"""`dmlgbm bench`: how fast this machine trains and predicts, next to LightGBM where it is installed.

The libraries take turns, so that a slow moment of the machine hits both, and the fastest of three rounds counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

from dmlgbm.command_line.console import Console

SUMMARY = "Measure training and prediction on generated data."

_ROUNDS = 3
_NUM_LEAVES = 31
_SHARE_TO_PREDICT = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=_positive, default=100_000, metavar="N", help="rows to train on")
    parser.add_argument("--features", type=_positive, default=20, metavar="N")
    parser.add_argument("--trees", type=_positive, default=50, metavar="N")


def run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    import numpy as np

    from dmlgbm.command_line.generated_rows import generated_rows
    from dmlgbm.gbdt.system.cores import available_threads

    n_threads = available_threads()
    n_new = max(1, round(arguments.rows * _SHARE_TO_PREDICT))
    known = generated_rows(arguments.rows, arguments.features)
    new = generated_rows(n_new, arguments.features, first_row=arguments.rows)
    labels, new_labels = (known.target > 0).astype(np.int32), (new.target > 0).astype(np.int32)
    parameters = {"n_estimators": arguments.trees, "num_leaves": _NUM_LEAVES, "n_jobs": n_threads}
    makers = _makers(parameters)
    console.say(
        f"{arguments.rows:,} rows, {arguments.features} features, {arguments.trees} trees of {_NUM_LEAVES} leaves, "
        f"{n_threads} threads; {n_new:,} new rows to predict; the fastest of {_ROUNDS} rounds"
    )
    for make in makers.values():
        # Compiles, and loads code pages; the numbers below are for everything after the first fit.
        make().fit(known.features, labels).predict_proba(new.features)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    probabilities: dict[str, Any] = {}
    for _ in range(_ROUNDS):
        for name, make in makers.items():
            started = time.perf_counter()
            model = make().fit(known.features, labels)
            fitted = time.perf_counter()
            probabilities[name] = model.predict_proba(new.features)[:, 1]
            seconds[name].append((fitted - started, time.perf_counter() - fitted))
    libraries = {
        name: _measured(seconds[name], _log_loss(new_labels, probabilities[name]), arguments, n_new) for name in makers
    }
    _show(libraries, console)
    sizes = {"rows": arguments.rows, "features": arguments.features, "trees": arguments.trees, "threads": n_threads}
    return {"command": "bench", **sizes, "libraries": libraries}


def _makers(parameters: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    import dmlgbm

    makers: dict[str, Callable[[], Any]] = {"dmlgbm": lambda: dmlgbm.DMLGBMClassifier(**parameters)}
    if importlib.util.find_spec("lightgbm") is not None:
        import lightgbm

        makers["lightgbm"] = lambda: lightgbm.LGBMClassifier(**parameters, verbose=-1)
    return makers


def _measured(
    seconds: list[tuple[float, float]], log_loss: float, arguments: argparse.Namespace, n_new: int
) -> dict[str, float]:
    fit, predict = (min(times) for times in zip(*seconds, strict=True))
    return {
        "fit_seconds": fit,
        "predict_seconds": predict,
        "fit_ns_per_row_feature_tree": 1e9 * fit / (arguments.rows * arguments.features * arguments.trees),
        "predict_ns_per_row_tree": 1e9 * predict / (n_new * arguments.trees),
        "log_loss": log_loss,
    }


def _log_loss(labels: Any, probability: Any) -> float:
    import numpy as np

    of_label = np.where(labels == 1, probability, 1.0 - probability)
    return float(-np.log(np.maximum(of_label, 1e-15)).mean())


def _show(libraries: dict[str, dict[str, float]], console: Console) -> None:
    console.say(f"\n{'':<12}{'fit':>10}{'predict':>12}{'fit: ns per':>18}{'predict: ns':>14}{'log loss':>11}")
    console.say(f"{'':<34}{'row-feature-tree':>18}{'per row-tree':>14}{'on new rows':>12}")
    for name, measured in libraries.items():
        console.say(
            f"{name:<12}{measured['fit_seconds']:>8.3f} s{measured['predict_seconds']:>10.4f} s"
            f"{measured['fit_ns_per_row_feature_tree']:>18.3f}{measured['predict_ns_per_row_tree']:>14.1f}"
            f"{measured['log_loss']:>11.5f}"
        )
    if "lightgbm" in libraries:
        ours, theirs = libraries["dmlgbm"], libraries["lightgbm"]
        fit, predict = (ours[key] / theirs[key] for key in ("fit_seconds", "predict_seconds"))
        console.say(f"\ndmlgbm takes {fit:.2f} times LightGBM's time to fit and {predict:.2f} times to predict.")
    else:
        console.say("\nLightGBM is not installed: pip install lightgbm to compare.")


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return value

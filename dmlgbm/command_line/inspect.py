"""`dmlgbm inspect`: what a model file holds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlgbm.command_line.console import Console, size_text, visible

if TYPE_CHECKING:
    from dmlgbm.gbdt.booster import Booster

SUMMARY = "Show what a model file holds."

_MOST_FEATURES_SHOWN = 15
_MOST_CLASSES_SHOWN = 10
_BAR_WIDTH = 30
_NAME_WIDTH = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="model file, or a checkpoint")
    parser.add_argument("--trees", type=int, default=0, metavar="N", help="print the first N trees too")


def run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    from dmlgbm.command_line.tree_text import tree_lines
    from dmlgbm.sklearn_api.saved_state import booster_from_file

    if arguments.trees < 0:
        raise ValueError(f"--trees {arguments.trees} is out of range: it must be at least 0.")
    booster = booster_from_file(arguments.model)
    result = {"command": "inspect", "model": arguments.model, "bytes": Path(arguments.model).stat().st_size}
    result |= _estimator_facts(arguments.model, booster) | _tree_facts(booster)
    _show(result, console)
    n_trees = min(arguments.trees, len(booster.trees))
    for number in range(n_trees):
        console.say(f"\ntree {number}")
        for line in tree_lines(booster, number):
            console.say(f"  {visible(line)}")
    if n_trees:
        result["first_trees"] = [_arrays(tree) for tree in booster.trees[:n_trees]]
    return result


def _estimator_facts(path: str, booster: Booster) -> dict[str, Any]:
    """What only an estimator knows; a checkpoint holds trees alone."""
    if "estimator" not in booster.metadata:
        return {"class": None, "parameters": {}, "classes": None, "best_iteration": None}
    import dmlgbm

    model = dmlgbm.load_model(path)
    defaults = type(model)().get_params()
    changed = {name: value for name, value in model.get_params().items() if value != defaults[name]}
    return {
        "class": type(model).__name__,
        "parameters": changed,
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
        "best_iteration": model.best_iteration_,
    }


def _tree_facts(booster: Booster) -> dict[str, Any]:
    from dmlgbm.command_line.tree_text import feature_name

    leaves = [tree.n_leaves for tree in booster.trees]
    gains, splits = booster.feature_importance("gain"), booster.feature_importance("split")
    return {
        "objective": booster.objective,
        "features": booster.n_features,
        "categorical_features": sum(known is not None for known in booster.categories),
        "iterations": booster.n_iterations,
        "trees": len(booster.trees),
        "leaves": sum(leaves),
        "most_leaves": max(leaves, default=0),
        "depth": max((tree.depth for tree in booster.trees), default=0),
        "base_scores": booster.base_scores.tolist(),
        "importances": [
            {"feature": feature_name(booster, feature), "gain": float(gains[feature]), "splits": int(splits[feature])}
            for feature in sorted(range(booster.n_features), key=lambda feature: -gains[feature])
        ],
    }


def _show(result: dict[str, Any], console: Console) -> None:
    best = "" if result["best_iteration"] is None else f", best {result['best_iteration']}"
    lines = {
        "model": f"{result['class'] or 'a checkpoint: trees without an estimator'}, objective {result['objective']}",
        "file": f"{result['model']}, {size_text(result['bytes'])}",
        "features": f"{result['features']:,}, {result['categorical_features']:,} of them categorical",
        "iterations": f"{result['iterations']:,}{best}",
        "trees": f"{result['trees']:,}, {result['leaves']:,} leaves (at most {result['most_leaves']:,} in a tree), "
        f"depth up to {result['depth']}",
    }
    if result["classes"] is not None:
        shown = ", ".join(visible(str(label)) for label in result["classes"][:_MOST_CLASSES_SHOWN])
        more = " ..." if len(result["classes"]) > _MOST_CLASSES_SHOWN else ""
        lines["classes"] = f"{len(result['classes'])}: {shown}{more}"
    if result["parameters"]:
        lines["parameters"] = ", ".join(f"{name}={value}" for name, value in result["parameters"].items())
    for name, text in lines.items():
        console.say(f"{name:<12}{text}")
    _show_importances(result["importances"], console)


def _show_importances(importances: list[dict[str, Any]], console: Console) -> None:
    total = sum(entry["gain"] for entry in importances)
    used = [entry for entry in importances if entry["splits"]]
    if not used or total <= 0.0:
        return
    console.say(f"\n{'feature':<{_NAME_WIDTH}}{'gain':>7}{'splits':>9}")
    for entry in used[:_MOST_FEATURES_SHOWN]:
        name = visible(entry["feature"])
        shown = name if len(name) < _NAME_WIDTH else f"{name[: _NAME_WIDTH - 2]}…"
        bar = "█" * round(_BAR_WIDTH * entry["gain"] / used[0]["gain"])
        console.say(f"{shown:<{_NAME_WIDTH}}{entry['gain'] / total:>7.1%}{entry['splits']:>9,}  {bar}")
    n_left_out = len(importances) - min(len(used), _MOST_FEATURES_SHOWN)
    if n_left_out:
        console.say(f"and {n_left_out:,} more, {len(importances) - len(used):,} of which no split uses")


def _arrays(tree: Any) -> dict[str, Any]:
    from dmlgbm.gbdt.model.tree import TREE_ARRAYS

    return {name: getattr(tree, name).tolist() for name in TREE_ARRAYS}

"""What `fit` says of data and settings that give less than whoever wrote them wants, once a fit."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.feature_bins import MAX_CATEGORIES
from dmlgbm.gbdt.data.table import CategoricalColumn, Category, Table
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.sklearn_api.tables.category_types import meant_categories
from dmlgbm.sklearn_api.tables.names import CategoricalFeature, column_labels

# Texts of a column that are looked at, and the share of them that must be alike.
_MOST_LOOKED_AT = 1_000
_NEARLY_ALL = 0.95

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[-+]\d{2}:?\d{2})?)?")
_NUMBER = re.compile(r"[-+]?\s*[$€£¥]?\s*[-+]?(\d{1,3}([, ]\d{3})+|\d+)?([.,]\d+)?([eE][-+]?\d+)?\s*[%$€£¥]?")
_CODE = re.compile(r"0\d")  # 01234 is a code: as a number it would lose its zero

_REMEDIES = {
    "dates": "convert it to dates, for example with pandas.to_datetime",
    "numbers": "convert it to numbers, for example with pandas.to_numeric after removing signs such as $ and %",
}


def warn_of_table(X: Any, table: Table, categorical_feature: CategoricalFeature) -> None:
    """Say what `warn_of_categories` has to say of a table that was read from X."""
    if any(isinstance(column, CategoricalColumn) for column in table.columns):
        warn_of_categories(Columns.of(table), meant_categories(X, categorical_feature, table.names, table.n_features))


def warn_of_categories(columns: Columns, meant: Collection[int], table_name: str = "X") -> None:
    """Say which columns have too many categories, and which hold dates or numbers as text.

    `meant` are the columns that the user has made categorical: by their type, or by `categorical_feature`.
    """
    labels = column_labels(columns.names, table_name)
    for feature, known in enumerate(columns.categories):
        if known is None:
            continue
        if len(known) > MAX_CATEGORIES:
            warnings.warn(
                f"The {labels(feature)} has {len(known):,} categories: {MAX_CATEGORIES:,} are told apart, the other "
                f"{len(known) - MAX_CATEGORIES:,} count as missing. Group the rare ones, or leave the column out.",
                stacklevel=6,
            )
        found = None if feature in meant else text_kind(known)
        if found is not None:
            kind, example = found
            warnings.warn(
                f"The {labels(feature)} holds {kind} as text, such as {example!r}, and every text is a category of its "
                f"own: {_REMEDIES[kind]}; if categories are meant, list it in categorical_feature.",
                stacklevel=6,
            )


def text_kind(categories: Sequence[Category]) -> tuple[str, str] | None:
    """Whether nearly all texts are "dates" or "numbers", with one of them."""
    step = -(-len(categories) // _MOST_LOOKED_AT) or 1
    texts = [text.strip() for text in categories[::step] if isinstance(text, str) and text.strip()]
    dates = [text for text in texts if _DATE.fullmatch(text)]
    if dates and len(dates) >= _NEARLY_ALL * len(texts):
        return "dates", dates[0]
    numbers = [text for text in texts if _NUMBER.fullmatch(text) and any(map(str.isdigit, text))]
    if numbers and len(numbers) >= _NEARLY_ALL * len(texts) and not any(map(_CODE.match, numbers)):
        return "numbers", numbers[0]
    return None


# Parameters of one way of boosting or sampling.
_OF_DART = ("drop_rate", "max_drop", "skip_drop", "uniform_drop", "xgboost_dart_mode", "drop_seed")
_OF_GOSS = ("top_rate", "other_rate")


def warn_of_other_modes(parameters: TrainParameters) -> None:
    """Say which parameters belong to ways of boosting and of drawing rows that were not chosen."""
    defaults = {each.name: each.default for each in fields(TrainParameters)}
    modes = (
        (_OF_DART, parameters.boosting_type != "dart", "without boosting_type='dart'"),
        (_OF_GOSS, parameters.data_sample_strategy != "goss", "without data_sample_strategy='goss'"),
        (("bagging_temperature",), parameters.bootstrap_type != "bayesian", "without bootstrap_type='bayesian'"),
        (("mvs_reg",), parameters.bootstrap_type != "mvs", "without bootstrap_type='mvs'"),
        (("learning_rate",), parameters.averages, "with boosting_type='rf', which averages whole trees"),
    )
    for names, has_none, why in modes:
        unused = [name for name in names if has_none and getattr(parameters, name) != defaults[name]]
        if unused:
            warnings.warn(
                f"{', '.join(unused)} {'has' if len(unused) == 1 else 'have'} no effect {why}: leave "
                f"{'it' if len(unused) == 1 else 'them'} out.",
                stacklevel=4,
            )
    if parameters.subsample < 1 and parameters.subsample_freq == 0 and not parameters.weighs_rows:
        # LightGBM's defaults, but nobody who writes this wants it.
        warnings.warn(
            f"subsample={parameters.subsample} has no effect while subsample_freq=0: set subsample_freq=1 to draw the "
            "rows of every tree.",
            stacklevel=4,
        )


def warn_of_unused_metric(
    eval_metric: Any, watched: Collection[Any], remedy: str = "pass an eval_set, or set early_stopping=True"
) -> None:
    """Say that metrics are evaluated on evaluation sets only."""
    if eval_metric is not None and not watched:
        warnings.warn(f"eval_metric has no effect without rows to evaluate it on: {remedy}.", stacklevel=4)


def warn_of_small_targets(objective: str, target: npt.NDArray[np.float64]) -> None:
    """Say that relative errors of small targets are taken as absolute ones."""
    n_small = int(np.count_nonzero(np.abs(target) < 1.0)) if objective == "mape" else 0
    if n_small:
        warnings.warn(
            f"{n_small:,} of {len(target):,} targets are below 1 in magnitude, and objective 'mape' divides their "
            "errors by 1: choose a smaller unit for y if relative errors are meant there too.",
            stacklevel=4,
        )


def warn_of_constant_model(booster: Booster, n_rows: int, parameters: TrainParameters) -> None:
    """Say that there were too few rows for any split, or that trees were grown over none."""
    if n_rows < 2 * parameters.min_child_samples and not any(tree.n_nodes for tree in booster.trees):
        warnings.warn(
            f"No tree has a split, so the model predicts the same for every row: a split needs two leaves of "
            f"min_child_samples={parameters.min_child_samples} rows, but there are {n_rows} rows to learn from. Lower "
            "min_child_samples.",
            stacklevel=4,
        )
    empty = [tree for tree in booster.trees if not tree.leaf_count.any()] if parameters.subsample < 1 else []
    if empty:
        warnings.warn(
            f"subsample={parameters.subsample} drew no row for {len(empty)} of {len(booster.trees)} trees, which add "
            "nothing to the model: raise subsample.",
            stacklevel=4,
        )

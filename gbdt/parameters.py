"""Everything that decides what a training run does, checked once, in one record."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal


class ParameterError(ValueError):
    """A parameter that is out of range; the message names it and says what is allowed."""


@dataclass(frozen=True, kw_only=True)
class BinningParameters:
    """How columns become bins. Data sets binned alike can be shared between runs."""

    max_bin: int = 255
    sample_rows: int = 200_000
    min_data_in_bin: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        _require(2 <= self.max_bin <= 65_000, "max_bin", self.max_bin, "between 2 and 65000")
        _require(self.sample_rows >= 1, "subsample_for_bin", self.sample_rows, "at least 1")
        _require(self.min_data_in_bin >= 0, "min_data_in_bin", self.min_data_in_bin, "at least 0")


@dataclass(frozen=True, kw_only=True)
class TrainParameters:
    """How trees are grown and added up. Names are LightGBM's."""

    n_estimators: int = 100
    learning_rate: float = 0.1
    num_leaves: int = 31
    max_depth: int = -1
    grow_policy: Literal["leafwise", "depthwise"] = "leafwise"
    min_child_samples: int = 20
    min_child_weight: float = 1e-3
    min_split_gain: float = 0.0
    reg_alpha: float = 0.0
    reg_lambda: float = 0.0
    subsample: float = 1.0
    subsample_freq: int = 0
    colsample_bytree: float = 1.0
    colsample_bynode: float = 1.0
    extra_trees: bool = False
    cat_smooth: float = 10.0
    cat_l2: float = 10.0
    max_cat_threshold: int = 24
    max_cat_to_onehot: int = 4
    min_data_per_group: int = 100
    path_smooth: float = 0.0
    feature_contri: tuple[float, ...] | None = None  # of each column: what its gains are multiplied by
    monotone_constraints: tuple[int, ...] | None = None  # of each column: 1, -1 or 0
    monotone_constraints_method: Literal["basic", "intermediate"] = "basic"
    interaction_constraints: tuple[tuple[int, ...], ...] | None = None  # columns that may meet on a way from the root
    precision: Literal["auto", "fast", "exact"] = "auto"
    early_stopping_rounds: int | None = None
    early_stopping_min_delta: float = 0.0
    first_metric_only: bool = False
    early_stopping_sets: tuple[str, ...] | None = None  # names of evaluation sets; None for all
    seed: int = 0
    n_threads: int = 1

    def __post_init__(self) -> None:
        _require(self.n_estimators >= 1, "n_estimators", self.n_estimators, "at least 1")
        _require(0 < self.learning_rate < float("inf"), "learning_rate", self.learning_rate, "positive and finite")
        _require(2 <= self.num_leaves <= 131_072, "num_leaves", self.num_leaves, "between 2 and 131072")
        _require(self.max_depth == -1 or self.max_depth > 0, "max_depth", self.max_depth, "-1 (no limit) or at least 1")
        _require_choice("grow_policy", self.grow_policy, ("leafwise", "depthwise"))
        _require_choice("monotone_constraints_method", self.monotone_constraints_method, ("basic", "intermediate"))
        _require_choice("precision", self.precision, ("auto", "fast", "exact"))
        for name in ("min_child_samples", "subsample_freq", "min_data_per_group", "max_cat_to_onehot"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        for name in (
            "min_child_weight",
            "min_split_gain",
            "reg_alpha",
            "reg_lambda",
            "path_smooth",
            "cat_smooth",
            "cat_l2",
        ):
            _require(0 <= getattr(self, name) < float("inf"), name, getattr(self, name), "at least 0 and finite")
        for name in ("subsample", "colsample_bytree", "colsample_bynode"):
            _require(0 < getattr(self, name) <= 1, name, getattr(self, name), "above 0 and at most 1")
        _require(1 <= self.max_cat_threshold <= 4096, "max_cat_threshold", self.max_cat_threshold, "between 1 and 4096")
        rounds = self.early_stopping_rounds
        _require(rounds is None or rounds >= 1, "early_stopping_rounds", rounds, "at least 1")
        delta = self.early_stopping_min_delta
        _require(0 <= delta < float("inf"), "early_stopping_min_delta", delta, "at least 0 and finite")
        _require(self.n_threads >= 1, "n_jobs", self.n_threads, "at least 1 thread")


def names_of(record: type) -> list[str]:
    """The parameter names of one of the records above."""
    return [field.name for field in fields(record)]


def _require(holds: bool, name: str, value: Any, allowed: str) -> None:
    if not holds:
        raise ParameterError(f"{name}={value!r} is out of range: it must be {allowed}.")


def _require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ParameterError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}.")

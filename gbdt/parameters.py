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

    boosting_type: Literal["gbdt", "rf", "dart"] = "gbdt"
    n_estimators: int = 100
    learning_rate: float = 0.1
    learning_rates: tuple[float, ...] | None = None  # of each iteration of this fit, where they differ
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
    data_sample_strategy: Literal["bagging", "goss"] = "bagging"
    bootstrap_type: Literal["bernoulli", "bayesian", "mvs"] = "bernoulli"
    bagging_temperature: float = 1.0
    mvs_reg: float | None = None
    pos_bagging_fraction: float = 1.0
    neg_bagging_fraction: float = 1.0
    top_rate: float = 0.2
    other_rate: float = 0.1
    drop_rate: float = 0.1
    max_drop: int = 50
    skip_drop: float = 0.5
    uniform_drop: bool = False
    xgboost_dart_mode: bool = False
    drop_seed: int | None = None
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
        for rate in self.learning_rates or ():
            _require(0 < rate < float("inf"), "learning_rate of reset_parameter", rate, "positive and finite")
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
        self._check_sampling()
        self._check_boosting()

    @property
    def averages(self) -> bool:
        """Whether a prediction is the mean of the trees instead of their sum."""
        return self.boosting_type == "rf"

    @property
    def shrinkage(self) -> float:
        """The factor on the values of every new tree, where it does not change."""
        return 1.0 if self.averages else self.learning_rate

    def rate_of(self, iteration: int) -> float:
        """The factor on the values of the trees of an iteration, counted from the first of this fit."""
        return self.shrinkage if self.learning_rates is None else self.learning_rates[iteration]

    @property
    def changes_rate(self) -> bool:
        """Whether iterations are shrunk by other rates than `learning_rate`."""
        return any(rate != self.learning_rate for rate in self.learning_rates or ())

    @property
    def weighs_rows(self) -> bool:
        """Whether some rows count more than others in a tree, whatever their weights."""
        return self.data_sample_strategy == "goss" or self.bootstrap_type != "bernoulli"

    @property
    def draws_classes(self) -> bool:
        """Whether the rows of the two classes are drawn with shares of their own."""
        return self.pos_bagging_fraction < 1.0 or self.neg_bagging_fraction < 1.0

    def require_classes_to_draw(self, n_classes: int) -> None:
        """Whether the target has the two classes whose shares are given."""
        if self.draws_classes and n_classes != 2:
            raise ParameterError(
                f"pos_bagging_fraction and neg_bagging_fraction are for two classes, but y holds {n_classes}: use "
                "subsample."
            )

    def _check_sampling(self) -> None:
        _require_choice("data_sample_strategy", self.data_sample_strategy, ("bagging", "goss"))
        _require_choice("bootstrap_type", self.bootstrap_type, ("bernoulli", "bayesian", "mvs"))
        temperature, ridge = self.bagging_temperature, self.mvs_reg
        _require(0 <= temperature < float("inf"), "bagging_temperature", temperature, "at least 0 and finite")
        _require(ridge is None or 0 <= ridge < float("inf"), "mvs_reg", ridge, "None, or at least 0 and finite")
        for name in ("pos_bagging_fraction", "neg_bagging_fraction"):
            _require(0 < getattr(self, name) <= 1, name, getattr(self, name), "above 0 and at most 1")
        self._check_bootstrap()
        self._check_class_shares()
        self._check_one_sided()

    def _check_bootstrap(self) -> None:
        kind = self.bootstrap_type
        if kind != "bernoulli" and self.data_sample_strategy == "goss":
            raise ParameterError(
                f"bootstrap_type={kind!r} weighs rows, and so does data_sample_strategy='goss': leave one of them out."
            )
        if kind == "bayesian" and self.subsample < 1.0:
            raise ParameterError(
                f"subsample={self.subsample!r} draws rows, but bootstrap_type='bayesian' weighs all of them: leave "
                "subsample at 1."
            )
        if kind == "mvs" and self.subsample == 1.0:
            raise ParameterError("bootstrap_type='mvs' draws a share of the rows: set subsample below 1.")
        if kind == "mvs" and self.subsample_freq > 1:
            raise ParameterError(
                f"subsample_freq={self.subsample_freq!r} keeps rows for several iterations, but bootstrap_type='mvs' "
                "goes by the gradients of each: leave it out."
            )

    def _check_class_shares(self) -> None:
        if not self.draws_classes:
            return
        if self.subsample < 1.0 or self.weighs_rows:
            raise ParameterError(
                "pos_bagging_fraction and neg_bagging_fraction draw rows by class: leave out other ways to draw or "
                "weigh rows (subsample, bootstrap_type, data_sample_strategy)."
            )
        if self.subsample_freq == 0:
            raise ParameterError(
                "pos_bagging_fraction and neg_bagging_fraction have no effect while subsample_freq=0: set "
                "subsample_freq=1 to draw the rows of every tree."
            )

    def _check_one_sided(self) -> None:
        for name in ("top_rate", "other_rate"):
            _require(0 < getattr(self, name) < 1, name, getattr(self, name), "above 0 and below 1")
        if self.data_sample_strategy != "goss":
            return
        if self.top_rate + self.other_rate > 1.0:
            raise ParameterError(
                f"top_rate={self.top_rate!r} and other_rate={self.other_rate!r} are shares of all rows and add up to "
                "more than 1: lower one of them."
            )
        if self.subsample < 1.0:
            raise ParameterError(
                f"subsample={self.subsample!r} draws rows, and so does data_sample_strategy='goss': leave subsample "
                "at 1."
            )

    def _check_boosting(self) -> None:
        _require_choice("boosting_type", self.boosting_type, ("gbdt", "rf", "dart"))
        for name in ("drop_rate", "skip_drop"):
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        _require(self.drop_seed is None or self.drop_seed >= 0, "drop_seed", self.drop_seed, "None or at least 0")
        draws_rows = self.weighs_rows or self.draws_classes or (self.subsample < 1.0 and self.subsample_freq > 0)
        draws_splits = self.colsample_bytree < 1.0 or self.colsample_bynode < 1.0 or self.extra_trees
        if self.averages and not draws_rows and not draws_splits:
            raise ParameterError(
                "boosting_type='rf' without sampling would grow the same tree every time: set subsample below 1 and "
                "subsample_freq=1, or colsample_bytree or colsample_bynode below 1, or extra_trees=True."
            )
        if self.averages and self.learning_rates is not None:
            raise ParameterError(
                "reset_parameter changes learning_rate, which has no effect with boosting_type='rf': leave it out."
            )
        if self.boosting_type == "dart" and self.early_stopping_rounds is not None:
            raise ParameterError(
                "early stopping has no meaning with boosting_type='dart', where later iterations change earlier "
                "trees, so that no model of fewer iterations is left to go back to: set early_stopping=False."
            )


def names_of(record: type) -> list[str]:
    """The parameter names of one of the records above."""
    return [field.name for field in fields(record)]


def _require(holds: bool, name: str, value: Any, allowed: str) -> None:
    if not holds:
        raise ParameterError(f"{name}={value!r} is out of range: it must be {allowed}.")


def _require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ParameterError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}.")

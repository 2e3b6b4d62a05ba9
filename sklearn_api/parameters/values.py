"""Parameter values: checked by type here, by range in the engine's records, when `fit` starts.

scikit-learn asks for this moment: constructors and `set_params` take anything, so that searches can set parameters
one after the other.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.objectives.ranking import checked_gains
from dmlgbm.gbdt.parameters import BinningParameters, ParameterError, TrainParameters, names_of
from dmlgbm.gbdt.system.cores import available_threads
from dmlgbm.sklearn_api.parameters.column_rules import (
    Directions,
    Factors,
    Groups,
    checked_directions,
    checked_factors,
    checked_groups,
    directions_of,
    factors_of,
    groups_of,
)
from dmlgbm.sklearn_api.tables.names import did_you_mean
from dmlgbm.sklearn_api.watching.scoring import check_scoring
from dmlgbm.sklearn_api.watching.stopping import names_to_watch, stopping_rounds

_MOST_LEAVES = 131_072
_LARGEST_SEED = 2**64 - 1
_LARGEST_DRAWN_SEED = 2**31 - 1

_WHOLE_NUMBERS = (
    *("n_estimators", "num_leaves", "max_depth", "max_bin", "subsample_for_bin", "min_child_samples"),
    "min_data_in_bin",
    *("subsample_freq", "max_cat_threshold", "max_cat_to_onehot", "min_data_per_group", "early_stopping_rounds"),
    *("lambdarank_truncation_level", "top_k", "max_restarts", "max_drop", "drop_seed"),
)
_NUMBERS = (
    *("learning_rate", "min_child_weight", "min_split_gain", "reg_alpha", "reg_lambda", "subsample"),
    *("path_smooth", "colsample_bytree", "colsample_bynode", "cat_smooth", "cat_l2", "validation_fraction", "alpha"),
    *("early_stopping_min_delta", "worker_timeout", "top_rate", "other_rate", "drop_rate", "skip_drop"),
    *("bagging_temperature", "mvs_reg", "pos_bagging_fraction", "neg_bagging_fraction"),
    *("fair_c", "tweedie_variance_power", "focal_gamma", "focal_alpha", "scale_pos_weight"),
    *("aft_loss_distribution_scale", "lambdarank_position_bias_regularization"),
)
_MAY_BE_NONE = ("early_stopping_rounds", "validation_fraction", "max_depth", "num_leaves", "drop_seed", "mvs_reg")
_FLAGS = (
    *("first_metric_only", "refit_after_stopping", "warm_start", "extra_trees"),
    *("uniform_drop", "xgboost_dart_mode", "is_unbalance", "lambdarank_norm"),
)
_CHOICES = {
    "data_sample_strategy": ("bagging", "goss"),
    "handle_unknown": ("missing", "error"),
    "importance_type": ("split", "gain"),
    "tree_learner": ("auto", "data", "feature", "voting"),
}

# What LightGBM calls the ways of boosting.
_BOOSTING_TYPES = {
    **dict.fromkeys(("gbdt", "gbrt", "gbtree"), "gbdt"),
    **dict.fromkeys(("rf", "random_forest"), "rf"),
    "dart": "dart",
    "goss": "goss",
}

# What other libraries call our objectives; the values are ours.
OBJECTIVE_ALIASES = {
    **dict.fromkeys(("binary", "binary:logistic", "binary_crossentropy", "Logloss"), "binary"),
    "focal": "focal",
    **dict.fromkeys(
        ("multiclass", "softmax", "multi:softprob", "categorical_crossentropy", "MultiClass"), "multiclass"
    ),
    **dict.fromkeys(("multiclassova", "multiclass_ova", "ova", "ovr", "MultiClassOneVsAll"), "multiclassova"),
    **dict.fromkeys(
        (
            *("regression", "regression_l2", "l2", "mse", "squared_error", "mean_squared_error", "reg:squarederror"),
            *("l2_root", "rmse", "root_mean_squared_error", "RMSE"),
        ),
        "regression",
    ),
    **dict.fromkeys(
        ("regression_l1", "l1", "mae", "absolute_error", "mean_absolute_error", "reg:absoluteerror", "MAE"),
        "regression_l1",
    ),
    **dict.fromkeys(("quantile", "reg:quantileerror"), "quantile"),
    "huber": "huber",
    "fair": "fair",
    **dict.fromkeys(("logcosh", "log_cosh", "LogCosh"), "logcosh"),
    "expectile": "expectile",
    **dict.fromkeys(("mape", "mean_absolute_percentage_error", "MAPE"), "mape"),
    **dict.fromkeys(("poisson", "count:poisson", "Poisson"), "poisson"),
    **dict.fromkeys(("gamma", "reg:gamma"), "gamma"),
    **dict.fromkeys(("tweedie", "reg:tweedie"), "tweedie"),
    **dict.fromkeys(("cross_entropy", "xentropy", "reg:logistic", "CrossEntropy"), "cross_entropy"),
    **dict.fromkeys(("cox", "survival:cox"), "cox"),
    **dict.fromkeys(("aft", "survival:aft"), "aft"),
    **dict.fromkeys(("lambdarank", "rank:ndcg"), "lambdarank"),
    **dict.fromkeys(("pairwise", "rank:pairwise"), "pairwise"),
    **dict.fromkeys(("rank_xendcg", "xendcg", "xe_ndcg", "xe_ndcg_mart", "xendcg_mart"), "rank_xendcg"),
}


@dataclass(frozen=True)
class EngineParameters:
    """The two records that the engine trains by."""

    train: TrainParameters
    binning: BinningParameters
    limits_leaves: bool = True  # False for num_leaves=None
    # What is said of columns, until these are known.
    directions: Directions | None = None
    factors: Factors | None = None
    groups: Groups | None = None

    def for_table(self, n_rows: int, columns: Columns) -> EngineParameters:
        """The parameters for a table of so many rows with these columns."""
        train = replace(
            self.train,
            monotone_constraints=directions_of(self.directions, columns),
            feature_contri=factors_of(self.factors, columns),
            interaction_constraints=groups_of(self.groups, columns),
        )
        return replace(self, train=train)._for_rows(n_rows)

    def _for_rows(self, n_rows: int) -> EngineParameters:
        """Without a limit of leaves, as many as trees of so many rows can have: what is never reached costs memory."""
        if self.limits_leaves:
            return self
        most = min(n_rows // max(1, self.train.min_child_samples), _MOST_LEAVES)
        if 0 < self.train.max_depth < _MOST_LEAVES.bit_length():
            most = min(most, 1 << self.train.max_depth)
        return replace(self, train=replace(self.train, num_leaves=max(2, most)))


def engine_parameters(parameters: Mapping[str, Any], *, has_sets: bool = False) -> EngineParameters:
    """Check every parameter of an estimator and turn those that the engine knows into its records.

    `has_sets` says whether `fit` got evaluation sets.
    """
    check_types(parameters)
    seed = seed_of(parameters["random_state"])
    in_record = {name: parameters[name] for name in names_of(TrainParameters) if name in parameters}
    if boosting_named(parameters["boosting_type"]) == "goss":
        in_record |= {"boosting_type": "gbdt", "data_sample_strategy": "goss"}
    else:
        in_record["boosting_type"] = boosting_named(parameters["boosting_type"])
    kind = parameters["bootstrap_type"]
    in_record["bootstrap_type"] = kind.lower() if isinstance(kind, str) else kind  # CatBoost's are capitalised
    in_record["early_stopping_rounds"] = stopping_rounds(parameters, has_sets=has_sets)
    in_record["early_stopping_sets"] = names_to_watch(parameters["early_stopping_sets"])
    # A scorer is the first metric, and watched instead of all others.
    in_record["first_metric_only"] = bool(parameters["first_metric_only"] or parameters.get("scoring") is not None)
    for name in ("monotone_constraints", "interaction_constraints", "feature_contri"):
        in_record[name] = None  # until the columns are known
    if in_record["max_depth"] is None:
        in_record["max_depth"] = -1
    limits_leaves = in_record["num_leaves"] is not None
    if not limits_leaves:
        in_record["num_leaves"] = _MOST_LEAVES
    train = TrainParameters(**_plain(in_record), seed=seed, n_threads=n_threads_of(parameters["n_jobs"]))
    binning = BinningParameters(
        max_bin=int(parameters["max_bin"]),
        sample_rows=int(parameters["subsample_for_bin"]),
        min_data_in_bin=int(parameters["min_data_in_bin"]),
        seed=seed,
    )
    directions = checked_directions(parameters["monotone_constraints"])
    factors = checked_factors(parameters["feature_contri"])
    groups = checked_groups(parameters["interaction_constraints"])
    return EngineParameters(train, binning, limits_leaves, directions, factors, groups)


def is_whole_number(value: object) -> bool:
    """A bool is an int to Python, but not to whoever wrote it."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a real number, of Python or numpy."""
    return is_whole_number(value) or isinstance(value, float | np.floating)


def check_types(parameters: Mapping[str, Any]) -> None:
    """Whether numbers are numbers, and the ranges of the parameters that the engine does not see."""
    for names, is_allowed, wanted in (
        (_WHOLE_NUMBERS, is_whole_number, "a whole number"),
        (_NUMBERS, is_number, "a number"),
    ):
        for name in names:
            value = parameters.get(name, 0)
            if not is_allowed(value) and not (value is None and name in _MAY_BE_NONE):
                raise TypeError(f"{name} must be {wanted}, got {value!r} of type {type(value).__name__}.")
    asked = parameters["early_stopping"]
    if not isinstance(asked, bool | np.bool_) and not (isinstance(asked, str) and asked == "auto"):
        raise TypeError(f'early_stopping must be True, False or "auto", got {asked!r}.')
    check_scoring(parameters.get("scoring"))
    for name in _FLAGS:
        if not isinstance(parameters.get(name, False), bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {parameters[name]!r}.")
    for name, choices in _CHOICES.items():
        value = parameters[name]
        if not isinstance(value, str) or value not in choices:
            raise ParameterError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}.")
    _check_ranges(parameters)


def _check_ranges(parameters: Mapping[str, Any]) -> None:
    share = parameters["validation_fraction"]
    if share is not None and not 0 < share < 1:
        raise ParameterError(f"validation_fraction={share!r} is out of range: it must be above 0 and below 1.")
    if parameters["path_smooth"] > 0 and _takes_percentiles(parameters["objective"]):
        raise ParameterError(
            f"path_smooth={parameters['path_smooth']!r} smooths steps, but the leaves of objective="
            f"{parameters['objective']!r} hold percentiles: leave path_smooth at 0."
        )
    rounds = parameters["early_stopping_rounds"]
    if rounds is not None and rounds < 1:
        raise ParameterError(f"early_stopping_rounds={rounds!r} is out of range: it must be at least 1.")
    if parameters.get("lambdarank_truncation_level", 1) < 1:
        level = parameters["lambdarank_truncation_level"]
        raise ParameterError(f"lambdarank_truncation_level={level!r} is out of range: it must be at least 1.")
    penalty = parameters.get("lambdarank_position_bias_regularization", 0.0)
    if not 0.0 <= penalty < float("inf"):
        raise ParameterError(
            f"lambdarank_position_bias_regularization={penalty!r} is out of range: it must be at least 0 and finite."
        )
    for name, least in (("top_k", 1), ("max_restarts", 0)):
        if parameters[name] < least:
            raise ParameterError(f"{name}={parameters[name]!r} is out of range: it must be at least {least}.")
    if not 1 <= parameters["worker_timeout"] < float("inf"):
        seconds = parameters["worker_timeout"]
        raise ParameterError(f"worker_timeout={seconds!r} is out of range: it must be a finite number of at least 1.")
    folder = parameters["checkpoint_dir"]
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise TypeError(f"checkpoint_dir must be None or the path of a folder, got {folder!r}.")
    positions = parameters.get("eval_at", ())
    if not isinstance(positions, Sequence | np.ndarray) or not all(is_whole_number(position) for position in positions):
        raise TypeError(f"eval_at must be a list of whole numbers of positions, got {positions!r}.")
    gains_of_labels(parameters.get("label_gain"))
    verbose = parameters["verbose"]
    if not isinstance(verbose, bool) and not is_whole_number(verbose):
        raise ParameterError(
            f"verbose={verbose!r} must be 0 or below (silent) or report every so many iterations: 1, 10, ..."
        )


def _takes_percentiles(objective: Any) -> bool:
    return isinstance(objective, str) and OBJECTIVE_ALIASES.get(objective) in ("regression_l1", "quantile", "mape")


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """numpy's numbers as Python's, so that a model file does not depend on which the user wrote."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


def seed_of(random_state: Any) -> int:
    """The engine's seed: None is 0, so that fits are reproducible unless asked otherwise; a generator draws one."""
    if random_state is None:
        return 0
    # RandomState and Generator, told apart by the method each one has.
    for method in ("randint", "integers"):
        if hasattr(random_state, method):
            return int(getattr(random_state, method)(_LARGEST_DRAWN_SEED))
    if not is_whole_number(random_state):
        raise TypeError(f"random_state must be None, a whole number or a generator, got {random_state!r}.")
    if not 0 <= random_state <= _LARGEST_SEED:
        raise ParameterError(f"random_state={random_state!r} is out of range: it must be between 0 and 2**64 - 1.")
    return int(random_state)


def n_threads_of(n_jobs: Any) -> int:
    """Threads for n_jobs: None and -1 are all that this process may use, -2 all but one, and so on."""
    if n_jobs is None or (type(n_jobs) is int and n_jobs == -1):
        return available_threads()
    if not is_whole_number(n_jobs):
        raise TypeError(f"n_jobs must be None or a whole number, got {n_jobs!r} of type {type(n_jobs).__name__}.")
    if n_jobs == 0:
        raise ParameterError("n_jobs=0 is out of range: write a number of threads, or None or -1 for all of them.")
    return int(n_jobs) if n_jobs > 0 else max(1, available_threads() + 1 + int(n_jobs))


def objective_named(
    objective: Any, allowed: Iterable[str], default: str, estimator_name: str
) -> str | Callable[..., Any]:
    """The engine's name of an objective, or the user's own function."""
    if objective is None:
        return default
    if callable(objective):
        return objective
    if not isinstance(objective, str):
        raise TypeError(f"objective must be a name or a function, got {objective!r}.")
    allowed = tuple(allowed)
    name = OBJECTIVE_ALIASES.get(objective)
    if name in allowed:
        return name
    if name is not None:
        raise ParameterError(
            f"objective={objective!r} does not fit {estimator_name}: it takes {', '.join(map(repr, allowed))}."
        )
    guess = did_you_mean(objective, [alias for alias, name in OBJECTIVE_ALIASES.items() if name in allowed])
    raise ParameterError(
        f"objective={objective!r} is not known{guess}: {estimator_name} takes {', '.join(map(repr, allowed))}."
    )


def boosting_named(boosting_type: Any) -> str:
    """One name for each way of boosting."""
    name = _BOOSTING_TYPES.get(boosting_type) if isinstance(boosting_type, str) else None
    if name is None:
        raise ParameterError(f"boosting_type={boosting_type!r} is not one of 'gbdt', 'rf', 'dart', 'goss'.")
    return name


def checked_decay_rate(decay_rate: Any) -> float:
    """The share of the old values that `refit` keeps."""
    if not is_number(decay_rate):
        raise TypeError(f"decay_rate must be a number, got {decay_rate!r}.")
    if not 0.0 <= decay_rate <= 1.0:
        raise ParameterError(f"decay_rate={decay_rate!r} is out of range: it must be between 0 and 1.")
    return float(decay_rate)


def step_limit(max_delta_step: Any) -> float | None:
    """The limit of a leaf's step: None leaves it to the objective."""
    if max_delta_step is not None and not is_number(max_delta_step):
        raise TypeError(f"max_delta_step must be None or a number, got {max_delta_step!r}.")
    return None if max_delta_step is None else float(max_delta_step)


def gains_of_labels(label_gain: Any) -> tuple[float, ...] | None:
    """What each label gains; None for 2^l - 1."""
    if label_gain is None:
        return None
    if not isinstance(label_gain, Sequence | np.ndarray) or not all(is_number(gain) for gain in label_gain):
        raise TypeError(f"label_gain must be None or a list of numbers, the gain of each label, got {label_gain!r}.")
    return checked_gains(list(label_gain))


@dataclass(frozen=True)
class Stretch:
    """The iterations that a prediction adds up."""

    first: int
    n_iterations: int

    @classmethod
    def asked(cls, start_iteration: Any, num_iteration: Any, n_available: int, n_best: int | None = None) -> Stretch:
        """What start_iteration and num_iteration mean, as in LightGBM: up to the best without, zero or less for all."""
        if not is_whole_number(start_iteration):
            raise TypeError(f"start_iteration must be a whole number, got {start_iteration!r}.")
        if num_iteration is not None and not is_whole_number(num_iteration):
            raise TypeError(f"num_iteration must be None or a whole number, got {num_iteration!r}.")
        first = max(0, int(start_iteration))
        if first and first >= n_available:
            raise ParameterError(
                f"start_iteration={start_iteration} is beyond the model, which has {n_available} iterations (the first "
                "is 0)."
            )
        if num_iteration is None and first == 0 and n_best is not None:
            return cls(0, n_best)
        n_left = n_available - first
        if num_iteration is None or num_iteration <= 0:
            return cls(first, n_left)
        if num_iteration > n_left:
            warnings.warn(
                f"num_iteration={num_iteration} is beyond the model, which has {n_left} iterations"
                f"{f' from start_iteration={first} on' if first else ''}: all of them are used.",
                stacklevel=7,
            )
        return cls(first, min(int(num_iteration), n_left))

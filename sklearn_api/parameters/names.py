"""Parameter names: what other libraries call ours, and what to say about a name nobody knows.

An alias is listed only if it means exactly the same: a number tuned elsewhere can be moved here unchanged. The
estimators keep and report (`get_params`) the canonical name alone. Parameters that say what always happens here, such
as `tree_method="hist"`, are accepted and not kept.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dmlgbm.sklearn_api.tables.names import did_you_mean

Initialiser = TypeVar("Initialiser", bound=Callable[..., None])

ALIASES_OF: dict[str, tuple[str, ...]] = {
    "objective": ("loss", "loss_function", "application", "app", "objective_type"),
    "boosting_type": ("boosting",),
    "n_estimators": (
        *("num_boost_round", "num_iterations", "num_iteration", "num_round", "num_rounds", "num_trees"),
        *("nrounds", "n_iter", "max_iter", "iterations"),
    ),
    "learning_rate": ("eta", "shrinkage_rate"),
    "num_leaves": ("num_leaf", "max_leaf_nodes", "max_leaves", "max_leaf"),
    "max_bin": ("max_bins",),
    "subsample_for_bin": ("bin_construct_sample_cnt",),
    "min_child_samples": ("min_samples_leaf", "min_data_in_leaf", "min_data_per_leaf", "min_data"),
    "min_child_weight": (*("min_sum_hessian_in_leaf", "min_sum_hessian_per_leaf", "min_sum_hessian", "min_hessian"),),
    "min_split_gain": ("min_gain_to_split", "gamma", "min_split_loss"),
    "reg_alpha": ("lambda_l1", "l1_regularization"),
    "reg_lambda": ("lambda_l2", "lambda", "l2_regularization"),
    "max_delta_step": ("max_leaf_output", "max_tree_output"),
    "feature_contri": ("feature_contrib", "feature_penalty", "fc", "fp"),
    "monotone_constraints": ("monotonic_cst", "monotone_constraint", "mc"),
    "monotone_constraints_method": ("monotone_constraining_method", "mc_method"),
    "interaction_constraints": ("interaction_cst",),
    "subsample": ("bagging_fraction", "bagging", "sub_row"),
    "subsample_freq": ("bagging_freq",),
    "colsample_bytree": ("feature_fraction", "sub_feature"),
    "colsample_bynode": ("feature_fraction_bynode", "sub_feature_bynode", "max_features"),
    "pos_bagging_fraction": ("pos_sub_row", "pos_subsample", "pos_bagging"),
    "neg_bagging_fraction": ("neg_sub_row", "neg_subsample", "neg_bagging"),
    "drop_rate": ("rate_drop",),
    "extra_trees": ("extra_tree",),
    "categorical_feature": ("categorical_features", "cat_features", "cat_feature"),
    "early_stopping_rounds": ("early_stopping_round", "n_iter_no_change"),
    "early_stopping_min_delta": ("min_delta",),
    "eval_metric": ("metric", "metrics"),
    "random_state": ("seed", "random_seed"),
    "n_jobs": ("nthread", "num_threads", "n_threads", "num_thread", "thread_count"),
    "alpha": ("quantile", "quantile_alpha"),
    "is_unbalance": ("unbalance", "unbalanced_sets"),
    "eval_at": ("ndcg_eval_at", "ndcg_at"),
    "lambdarank_norm": ("lambdarank_normalization",),
}


@dataclass(frozen=True)
class _ForeignParameter:
    """A parameter of other libraries that we do not have, because one of its values is what always happens here."""

    is_ours: Callable[[Any], bool]
    otherwise: str  # what to do if another value was wanted
    means: Mapping[str, Any] = field(default_factory=dict)  # our parameters that say the same


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in values


_BOOSTER = _ForeignParameter(
    _one_of("gbdt", "gbrt", "gbtree"),
    "boosting_type says how trees are boosted; XGBoost's 'dart' is boosting_type='dart' with xgboost_dart_mode=True, "
    "uniform_drop=True, max_drop=0, and drop_rate and skip_drop (0 there) set",
)
_LAYOUT = _ForeignParameter(
    lambda value: isinstance(value, bool), "training chooses by itself how rows lie in memory: leave it out"
)
_DEVICE = _ForeignParameter(_one_of("cpu"), "training uses the CPUs, as many of them as n_jobs says")
FOREIGN_PARAMETERS = {
    "boost_from_average": _ForeignParameter(
        lambda value: value is True, "init_score says where scores start if not at the average"
    ),
    "booster": _BOOSTER,
    "deterministic": _ForeignParameter(
        lambda value: isinstance(value, bool), "fits are always reproducible: leave it out"
    ),
    "device": _DEVICE,
    "device_type": _DEVICE,
    "force_col_wise": _LAYOUT,
    "force_row_wise": _LAYOUT,
    "linear_tree": _ForeignParameter(lambda value: value is False, "leaves hold one value each"),
    "tree_method": _ForeignParameter(
        _one_of("hist", "auto"), "splits are always found in histograms ('hist'); max_bin sets how fine these are"
    ),
    "verbosity": _ForeignParameter(
        lambda value: isinstance(value, int) and value <= 0,
        "verbose=1 reports the metrics of every iteration, verbose=0 nothing",
        {"verbose": 0},
    ),
}

_CANONICAL = {alias: name for name, aliases in ALIASES_OF.items() for alias in aliases}


class UnknownParameterError(TypeError, ValueError):
    """A name that is no parameter: Python raises TypeError for that, scikit-learn's set_params ValueError."""


def canonical_parameters(given: Mapping[str, Any], known: Collection[str], estimator_name: str) -> dict[str, Any]:
    """`given` under our own names; an unknown name, or two names for one parameter that disagree, is an error."""
    canonical: dict[str, Any] = {}
    given_as: dict[str, str] = {}
    for name, value in _without_foreign(given, known, estimator_name).items():
        # Names with a double underscore belong to a nested estimator: scikit-learn deals with them.
        parameter = name if name in known or "__" in name else _CANONICAL.get(name)
        if parameter is None or (parameter not in known and "__" not in parameter):
            raise UnknownParameterError(_unknown(name, known, estimator_name))
        if parameter in canonical and not _same(canonical[parameter], value):
            raise ValueError(
                f"{given_as[parameter]}={canonical[parameter]!r} and {name}={value!r} are two names of the parameter "
                f"{parameter!r} of {estimator_name} and disagree: keep one of them."
            )
        canonical.setdefault(parameter, value)
        given_as.setdefault(parameter, name)
    return canonical


def _without_foreign(given: Mapping[str, Any], known: Collection[str], estimator_name: str) -> dict[str, Any]:
    """`given` without the parameters of others whose value is what happens here anyway."""
    kept: dict[str, Any] = {}
    implied: dict[str, Any] = {}
    for name, value in given.items():
        foreign = None if name in known else FOREIGN_PARAMETERS.get(name)
        if foreign is None:
            kept[name] = value
        elif foreign.is_ours(value):
            implied |= foreign.means
        else:
            raise UnknownParameterError(f"{estimator_name} has no {name}={value!r}: {foreign.otherwise}.")
    for name, value in implied.items():
        if not _same(kept.setdefault(name, value), value):
            raise ValueError(f"{name}={kept[name]!r} of {estimator_name} and another parameter disagree: keep one.")
    return kept


def stores_parameters(initialiser: Initialiser) -> Initialiser:
    """Make an `__init__` that lists parameters and defaults store them as attributes, and take aliases too.

    The wrapper sees only what the caller wrote, so `max_iter=50, n_estimators=100` is a conflict even though 100 is
    the default. The signature stays the listed one: scikit-learn and editors show canonical names alone.
    """
    parameters = list(inspect.signature(initialiser).parameters.values())[1:]
    defaults = {parameter.name: parameter.default for parameter in parameters}

    @functools.wraps(initialiser)
    def store(self: Any, **given: Any) -> None:
        initialiser(self)
        for name, value in {**defaults, **canonical_parameters(given, defaults, type(self).__name__)}.items():
            setattr(self, name, value)

    store.stores_parameters = True  # type: ignore[attr-defined]
    return store  # type: ignore[return-value]


@functools.cache
def parameter_names(kind: Any) -> tuple[str, ...]:
    """The parameters of an estimator class; where its `__init__` takes `**kwargs`, also those of the next class.

    A search asks for them several times a fit, and reading a signature takes as long as a small tree.
    """
    names: set[str] = set()
    for each in kind.__mro__:
        if "__init__" in vars(each):
            parameters = list(inspect.signature(vars(each)["__init__"]).parameters.values())[1:]
            if any(one.kind is one.VAR_POSITIONAL for one in parameters):
                raise RuntimeError(f"{kind.__name__}.__init__ must list its parameters by name, not take *args.")
            names.update(one.name for one in parameters if one.kind is not one.VAR_KEYWORD)
            if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                break
    return tuple(sorted(names))


@functools.cache
def storing_class(kind: Any) -> Any:
    """The class among those of an estimator whose parameters training goes by: a subclass may show others."""
    return next(each for each in kind.__mro__ if hasattr(vars(each).get("__init__"), "stores_parameters"))


def stored_parameters(estimator: Any) -> dict[str, Any]:
    """The parameters that training goes by, whatever a subclass shows of them."""
    kind: Any = type(estimator)
    return {name: getattr(estimator, name) for name in parameter_names(storing_class(kind))}


def _unknown(name: str, known: Collection[str], estimator_name: str) -> str:
    aliases = [alias for alias, parameter in _CANONICAL.items() if parameter in known]
    guess = did_you_mean(name, known) or did_you_mean(name, aliases)
    return f"{estimator_name} has no parameter {name!r}{guess}."


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one is other or one == other)
    except ValueError:  # arrays have no single truth
        return False

"""The description of every constructor parameter and argument of `fit`, once for the docstrings of all estimators."""

from __future__ import annotations

import inspect
from typing import TypeVar

Estimator = TypeVar("Estimator", bound=type)

PARAMETERS: dict[str, tuple[str, str]] = {
    "objective": ("str or callable", "What to minimise; None chooses by the target."),
    "boosting_type": (
        "{'gbdt', 'rf', 'dart', 'goss'}",
        "Boosted trees, averaged ones (a random forest), boosted with dropout; 'goss' is a `data_sample_strategy`.",
    ),
    "n_estimators": ("int", "Boosting iterations."),
    "learning_rate": ("float", "Factor on the values of every new tree."),
    "num_leaves": (
        "int or None",
        "Most leaves of a tree; None for no limit but that of `min_child_samples` and `max_depth`.",
    ),
    "max_depth": ("int or None", "Most splits between root and leaf; -1 or None for no limit."),
    "grow_policy": ("{'leafwise', 'depthwise'}", "Split the best leaf first, or level by level."),
    "max_bin": ("int", "Most bins of a feature, besides the one for missing values."),
    "subsample_for_bin": ("int", "Rows that bins are cut from."),
    "min_data_in_bin": ("int", "Fewest rows, of those that bins are cut from, in a bin of numbers."),
    "min_child_samples": ("int", "Fewest rows of a leaf, exact."),
    "min_child_weight": ("float", "Smallest sum of hessians of a leaf."),
    "min_split_gain": ("float", "Smallest gain of a split."),
    "reg_alpha": ("float", "L1 penalty on leaf values."),
    "reg_lambda": ("float", "L2 penalty on leaf values."),
    "max_delta_step": (
        "float or None",
        "Largest step of a leaf before the learning rate; 0: no limit. None: 10 where scores are logarithms, else 0.",
    ),
    "subsample": ("float", "Share of rows drawn for a tree; needs `subsample_freq` above 0."),
    "subsample_freq": ("int", "Draw rows anew every so many iterations; 0 for never."),
    "colsample_bytree": ("float", "Share of features drawn for a tree."),
    "colsample_bynode": ("float", "Share of the tree's features drawn for a split."),
    "data_sample_strategy": (
        "{'bagging', 'goss'}",
        "How rows are drawn for a tree: by `subsample`, or those of large gradients and some of the others.",
    ),
    "bootstrap_type": (
        "{'bernoulli', 'bayesian', 'mvs'}",
        "Draw rows at random, weigh all of them at random, or draw them by the size of their gradients.",
    ),
    "bagging_temperature": ("float", "How different the weights of 'bayesian' are; 0 for all alike."),
    "mvs_reg": (
        "float or None",
        "What 'mvs' adds to squared gradients: the more, the more alike rows are. None for their squared mean.",
    ),
    "pos_bagging_fraction": ("float", "Share of rows of the second of two classes drawn for a tree."),
    "neg_bagging_fraction": ("float", "Share of rows of the first of two classes drawn for a tree."),
    "top_rate": ("float", "Share of rows that 'goss' keeps for their large gradients."),
    "other_rate": ("float", "Share of rows, as of all, that 'goss' draws from the others, which then count for all."),
    "drop_rate": ("float", "Share of earlier iterations that 'dart' leaves out of one."),
    "max_drop": ("int", "Most iterations that 'dart' leaves out of one; 0 or below for no limit."),
    "skip_drop": ("float", "Share of iterations for which 'dart' leaves none out."),
    "uniform_drop": ("bool", "With 'dart', leave out all iterations alike, not the heavier ones more often."),
    "xgboost_dart_mode": ("bool", "With 'dart', weigh trees as XGBoost does."),
    "drop_seed": ("int or None", "Seed of what 'dart' leaves out; None for that of `random_state`."),
    "extra_trees": ("bool", "Try one threshold of each column in a node, drawn at random, instead of all."),
    "cat_smooth": ("float", "Smoothing of categories before they are sorted for a split."),
    "cat_l2": ("float", "L2 penalty added in categorical splits."),
    "max_cat_threshold": ("int", "Most categories on the smaller side of a categorical split."),
    "max_cat_to_onehot": ("int", "Up to this many categories, one is split from the rest."),
    "min_data_per_group": ("int", "Fewest rows of the categories between two splits that are tried."),
    "path_smooth": (
        "float",
        "What a node gives out is drawn to its parent: half and half where it has so many rows; 0 for not at all.",
    ),
    "feature_contri": (
        "list of float, dict or None",
        "What the gains of each column are multiplied by, by position or name; 0 keeps a column out.",
    ),
    "monotone_constraints": (
        "list of int, dict or None",
        "Of each column, by position or name: 1, scores must not fall as it grows; -1, they must not rise; 0, either.",
    ),
    "monotone_constraints_method": (
        "{'basic', 'intermediate'}",
        "How much a split at a constrained column leaves to the splits below it; 'intermediate' leaves more.",
    ),
    "interaction_constraints": (
        "list of lists, {'pairwise', 'no_interactions'} or None",
        "Groups of columns, by name or position: all columns on a way from the root to a leaf are in one group.",
    ),
    "categorical_feature": (
        "'auto' or list",
        "Names, positions or mask of number columns to treat as categories; text and category types are so anyway.",
    ),
    "handle_unknown": ("{'missing', 'error'}", "What an unseen category means in prediction."),
    "precision": ("{'auto', 'fast', 'exact'}", "Width of the integers that histograms add up."),
    "early_stopping": (
        "bool or 'auto'",
        "Stop when a watched metric no longer improves; 'auto' if `early_stopping_rounds` and an `eval_set` are given.",
    ),
    "early_stopping_rounds": ("int or None", "Iterations to wait for an improvement; None is 10."),
    "early_stopping_min_delta": ("float", "What a metric must improve by, more than this, to count as improved."),
    "early_stopping_sets": (
        "str, list of str or None",
        "Names of the evaluation sets that early stopping watches; None for all, of several all but the training rows.",
    ),
    "first_metric_only": ("bool", "Early stopping watches the first metric only, not all of them."),
    "scoring": (
        "str, callable or None",
        "Scikit-learn scorer, or 'loss', that early stopping watches instead of `eval_metric`.",
    ),
    "validation_fraction": (
        "float or None",
        "Share of rows set aside for early stopping where `fit` gets no `eval_set`; None to watch the training rows.",
    ),
    "refit_after_stopping": (
        "bool",
        "Whether leaf values are fitted again on all rows, those that early stopping set aside included.",
    ),
    "eval_metric": (
        "str, callable or list",
        "Metrics to evaluate: names, scorers or functions (y_true, y_pred) of a number or (name, value, higher).",
    ),
    "random_state": (
        "int, RandomState, Generator or None",
        "Seed of all random choices. None is 0: fits are reproducible unless asked otherwise.",
    ),
    "n_jobs": ("int or None", "Threads; None and -1 for all. The model does not depend on it."),
    "importance_type": ("{'split', 'gain'}", "What `feature_importances_` holds."),
    "warm_start": ("bool", "Go on from the trees of the last `fit` until there are `n_estimators`."),
    "verbose": ("int", "Report the metrics every so many iterations; 0 or below for never."),
    "tree_learner": (
        "{'auto', 'data', 'feature', 'voting'}",
        "On Dask collections: what workers divide, rows or features; 'voting' sends less and is approximate.",
    ),
    "top_k": ("int", "On Dask collections with tree_learner 'voting': features that each worker votes for."),
    "max_restarts": ("int", "On Dask collections: how often training goes on after workers were lost."),
    "worker_timeout": ("float", "On Dask collections: seconds of silence after which a worker is left out."),
    "checkpoint_dir": (
        "path or None",
        "On Dask collections: folder in which a fit leaves what another one needs to go on after a total loss.",
    ),
    "class_weight": ("dict, 'balanced' or None", "Weight of each class, on top of `sample_weight`."),
    "scale_pos_weight": ("float", "Factor on the derivatives of the second class, of each class one-vs-all."),
    "is_unbalance": ("bool", "Have the rarer of two classes, or of a class and the rest, count as much as the other."),
    "focal_gamma": ("float", "Exponent of objective 'focal'; 0 is log loss."),
    "focal_alpha": ("float", "What the second class counts in objective 'focal'; the first counts the rest to 1."),
    "alpha": ("float", "The level of objectives 'quantile' and 'expectile', or the threshold of 'huber'."),
    "fair_c": ("float", "Scale of objective 'fair': differences far below it are squared."),
    "tweedie_variance_power": ("float", "Power of objective 'tweedie', from 1 (Poisson) to less than 2 (gamma)."),
    "aft_loss_distribution": (
        "{'normal', 'logistic', 'extreme'}",
        "With objective 'aft', the distribution of the logarithm of a time.",
    ),
    "aft_loss_distribution_scale": ("float", "With objective 'aft', the scale of that distribution."),
    "eval_at": ("tuple of int", "Positions of the metrics 'ndcg', 'map', 'mrr' and 'err'."),
    "lambdarank_truncation_level": (
        "int",
        "Positions whose pairs with the rows behind them objectives 'lambdarank' and 'pairwise' look at.",
    ),
    "lambdarank_norm": (
        "bool",
        "Damping of queries with many wrong pairs and, with 'lambdarank', of pairs whose scores lie far apart.",
    ),
    "lambdarank_position_bias_regularization": (
        "float",
        "L2 penalty on what positions add to scores, where `fit` is given `position`.",
    ),
    "label_gain": (
        "list of float or None",
        "Gain of each label from 0 on, for objective 'lambdarank' and metric 'ndcg'; None for 2^label - 1.",
    ),
}

FIT_ARGUMENTS: dict[str, tuple[str, str]] = {
    "X": (
        "array, data frame, Arrow table, sparse matrix, Dask collection or Spark DataFrame",
        "The rows. A Dask collection or Spark DataFrame is trained on where it lies.",
    ),
    "y": ("array or column", "The target of each row. On Spark, the name of its column, as for all arguments by row."),
    "group": ("array", "Numbers of rows of the queries, one query after the other."),
    "qid": ("array", "The id of each row's query, instead of `group`."),
    "position": (
        "array",
        "Place at which each row was shown when it was graded, 0, 1, ...: what places add to grades is not learnt.",
    ),
    "sample_weight": ("array or number", "Weight of each row."),
    "init_score": (
        "array",
        "Raw scores to start from, [row] or [row, class], or flat, class after class. Not part of predictions.",
    ),
    "eval_set": ("list of (X, y)", "Rows to watch after every iteration; one pair will do without the list."),
    "eval_names": ("list of str", "Names of the evaluation sets; 'valid_0' and so on without."),
    "eval_sample_weight": ("list of arrays", "`sample_weight` of each evaluation set."),
    "eval_init_score": ("list of arrays", "`init_score` of each evaluation set."),
    "eval_group": ("list of arrays", "`group` of each evaluation set."),
    "eval_qid": ("list of arrays", "`qid` of each evaluation set."),
    "init_model": ("estimator, Booster or path", "Model that the new trees are added to."),
    "callbacks": ("function or list of functions", "Called after every iteration; `dmlgbm.time_limit(60)` is one."),
    "eval_metric": ("str, callable or list", "The constructor's `eval_metric`, for this fit."),
    "categorical_feature": ("'auto' or list", "The constructor's `categorical_feature`, for this fit."),
    "feature_name": ("list of str", "Names of the columns of an array."),
    "client": ("distributed.Client", "The client of a Dask collection; the current one without."),
}


def documented(estimator: Estimator) -> Estimator:
    """Add the descriptions of its parameters to the docstring of an estimator, and those of arguments to its `fit`."""
    estimator.__doc__ = _with_parameters(estimator.__doc__, inspect.signature(estimator), PARAMETERS)
    fit = vars(estimator)["fit"]
    fit.__doc__ = _with_parameters(fit.__doc__, inspect.signature(fit), FIT_ARGUMENTS)
    return estimator


def _with_parameters(text: str | None, signature: inspect.Signature, descriptions: dict[str, tuple[str, str]]) -> str:
    lines = [text or "", "", "Parameters", "----------"]
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        kind, description = descriptions[parameter.name]
        default = "" if parameter.default is parameter.empty else f", default={parameter.default!r}"
        lines += [f"{parameter.name} : {kind}{default}", f"    {description}"]
    return "\n".join(lines)

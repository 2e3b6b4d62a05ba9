"""What a split of one tree must fulfil, in the integer units of that tree."""

from __future__ import annotations

import math

import numpy as np

from dmlgbm.gbdt.growth.feature_rules import compares_gains, kind_of_bounds
from dmlgbm.gbdt.growth.quantisation import Quantised
from dmlgbm.gbdt.kernels.layout import SPLIT_RULES, RecordArray
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key


def split_rules(parameters: TrainParameters, quantised: Quantised, tree: int, n_features: int) -> RecordArray:
    """The parameters in this tree's units: gradients count 1 / gradient_scale, hessians 1 / hessian_scale."""
    gradient_scale, hessian_scale = quantised.gradient_scale, quantised.hessian_scale
    gain_scale = gradient_scale * gradient_scale / hessian_scale
    least_hessian = math.ceil(min(parameters.min_child_weight * hessian_scale, 2.0**62))
    rules = {
        "min_rows": max(1, parameters.min_child_samples),
        "min_hessian": max(1, least_hessian) + quantised.hessian_margin,
        "l1": parameters.reg_alpha * gradient_scale,
        "l2": parameters.reg_lambda * hessian_scale,
        "min_gain": parameters.min_split_gain * gain_scale,
        "rounding_gain": quantised.rounding_gain,
        "max_depth": parameters.max_depth,
        "category_smoothing": parameters.cat_smooth * hessian_scale,
        "category_l2": parameters.cat_l2 * hessian_scale,
        "category_min_rows": max(1, math.ceil(parameters.cat_smooth)),
        "max_category_threshold": parameters.max_cat_threshold,
        # A categorical feature always has a bin for missing values beside its categories.
        "max_one_against_rest": parameters.max_cat_to_onehot + 1,
        "min_rows_per_group": parameters.min_data_per_group,
        "features_per_node": max(1, round(n_features * parameters.colsample_bynode)),
        "node_key": node_key(parameters, tree),
        "at_random": parameters.extra_trees,
        "by_gain": compares_gains(parameters),
        "smoothing": parameters.path_smooth,
        "bounds": kind_of_bounds(parameters),
    }
    # All fields in one step: one after the other takes a microsecond each, before every tree.
    return np.array([tuple(rules[name] for name in SPLIT_RULES.names or ())], SPLIT_RULES)


def node_key(parameters: TrainParameters, tree: int) -> np.uint64:
    """What decides which features the nodes of a tree may use; the only rule that no two trees share."""
    return random_key(parameters.seed, Purpose.NODE_FEATURES, tree)

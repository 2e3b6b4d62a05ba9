"""What a split of one tree must fulfil, in the integer units of that tree."""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.growth.quantisation import Quantised
from dmlgbm.gbdt.kernels.layout import SPLIT_RULES, RecordArray
from dmlgbm.gbdt.parameters import TrainParameters
from dmlgbm.gbdt.random_keys import Purpose, random_key


def split_rules(parameters: TrainParameters, quantised: Quantised, tree: int, n_features: int) -> RecordArray:
    """The parameters in this tree's units: gradients count 1 / gradient_scale, hessians 1 / hessian_scale."""
    gradient_scale, hessian_scale = quantised.gradient_scale, quantised.hessian_scale
    gain_scale = gradient_scale * gradient_scale / hessian_scale
    rules = np.zeros(1, SPLIT_RULES)
    rules["min_rows"] = max(1, parameters.min_child_samples)
    least_hessian = int(np.ceil(min(parameters.min_child_weight * hessian_scale, 2.0**62)))
    rules["min_hessian"] = max(1, least_hessian) + quantised.hessian_margin
    rules["l1"] = parameters.reg_alpha * gradient_scale
    rules["l2"] = parameters.reg_lambda * hessian_scale
    rules["min_gain"] = parameters.min_split_gain * gain_scale
    rules["rounding_gain"] = quantised.rounding_gain
    rules["max_depth"] = parameters.max_depth
    rules["category_smoothing"] = parameters.cat_smooth * hessian_scale
    rules["category_l2"] = parameters.cat_l2 * hessian_scale
    rules["category_min_rows"] = max(1, int(np.ceil(parameters.cat_smooth)))
    rules["max_category_threshold"] = parameters.max_cat_threshold
    # A categorical feature always has a bin for missing values beside its categories.
    rules["max_one_against_rest"] = parameters.max_cat_to_onehot + 1
    rules["min_rows_per_group"] = parameters.min_data_per_group
    rules["features_per_node"] = max(1, round(n_features * parameters.colsample_bynode))
    rules["node_key"] = random_key(parameters.seed, Purpose.NODE_FEATURES, tree)
    return rules

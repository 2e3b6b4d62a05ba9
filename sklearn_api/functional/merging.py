"""`merge`: several models of the same columns and objective as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dmlgbm.sklearn_api.booster import Booster


def merge(*boosters: Booster) -> Booster:
    """One model whose raw scores are the sums of theirs; each is taken up to its best iteration."""
    if not boosters or not all(isinstance(each, Booster) for each in boosters):
        raise TypeError(
            "merge takes one Booster or more, each as an argument of its own: write merge(*boosters), and pass "
            "booster_ of an estimator."
        )
    first = boosters[0]
    for number, other in enumerate(boosters[1:], 1):
        differing = _difference(first, other)
        if differing is not None:
            raise ValueError(f"Booster {number} cannot be merged with the first one: {differing}.")
    if len(boosters) > 1 and first.averages:
        raise ValueError(
            "These Boosters average their trees (boosting_type='rf'), and merge adds scores up: fit one "
            "with more iterations, or go on from one with init_model."
        )
    cut = [each.first(each.best_iteration or each.n_iterations) for each in boosters]
    trees = tuple(tree for each in cut for tree in each.trees)
    base_scores = np.sum([each.base_scores for each in boosters], axis=0)
    params = first.params if all(each.params == first.params for each in boosters) else None
    changed = any(each.changed_rate for each in boosters)
    return replace(first, trees=trees, base_scores=base_scores, metadata={}, changed_rate=changed).described(
        None, {}, params
    )


def _difference(one: Booster, other: Booster) -> str | None:
    if one.objective != other.objective:
        return f"its objective is {other.objective!r}, not {one.objective!r}"
    if one.n_outputs != other.n_outputs:
        return f"it has {other.n_outputs} scores a row, not {one.n_outputs}"
    if one.averages != other.averages:
        return "trees are averaged in one of them (boosting_type='rf'), and added up in the other"
    if one.n_features != other.n_features:
        return f"it has {other.n_features} columns, not {one.n_features}"
    if one.feature_names != other.feature_names:
        return "its columns have other names, or another order"
    for number, (own, theirs) in enumerate(zip(one.categories, other.categories, strict=True)):
        if own != theirs:
            return f"column {one.columns.listed_names[number]!r} has other categories there"
    return None

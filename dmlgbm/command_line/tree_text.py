"""One tree as text: a line for each node and leaf, indented by depth, the branch that the condition takes first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlgbm.gbdt.booster import Booster
    from dmlgbm.gbdt.model.tree import Tree

_MOST_CATEGORIES_SHOWN = 6


def tree_lines(booster: Booster, number: int) -> Iterator[str]:
    """The lines of tree `number` of a model."""
    tree = booster.trees[number]
    # Leaf-wise trees may be deeper than Python's stack.
    waiting = [(0 if tree.n_nodes else ~0, 0, "")]
    while waiting:
        node, depth, branch = waiting.pop()
        indent = "  " * depth + branch
        if node < 0:
            yield f"{indent}leaf {~node}: {tree.leaf_value[~node]:+.6g}  ({tree.leaf_count[~node]:,} rows)"
            continue
        yield f"{indent}{_condition(booster, tree, node)}  ({tree.count[node]:,} rows, gain {tree.gain[node]:.4g})"
        waiting.append((int(tree.right[node]), depth + 1, "no:  "))
        waiting.append((int(tree.left[node]), depth + 1, "yes: "))


def feature_name(booster: Booster, feature: int) -> str:
    """A feature's name, or its position where the model knows no names."""
    return f"feature {feature}" if booster.feature_names is None else booster.feature_names[feature]


def _condition(booster: Booster, tree: Tree, node: int) -> str:
    feature = int(tree.feature[node])
    name = feature_name(booster, feature)
    or_missing = " or missing" if tree.missing_left[node] else ""
    if not tree.categorical[node]:
        return f"{name} <= {tree.threshold[node]:.6g}{or_missing}"
    known = booster.categories[feature] or ()
    codes = tree.categories[tree.category_start[node] : tree.category_start[node + 1]].tolist()
    shown = ", ".join(str(known[code]) for code in codes[:_MOST_CATEGORIES_SHOWN])
    n_left_out = len(codes) - _MOST_CATEGORIES_SHOWN
    more = f" and {n_left_out} more" if n_left_out > 0 else ""
    return f"{name} in {{{shown}{more}}}{or_missing}"

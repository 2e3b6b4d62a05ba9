"""A trained model: trees, where their scores start, and what the columns were called.

It knows nothing of bins and holds no training data; predictions come from its `Forest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.data.columns import Categories, Columns
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.model.forest import Forest
from dmlgbm.gbdt.model.model_file import ModelFileError, model_bytes, parse_model_bytes
from dmlgbm.gbdt.model.one_row import Link, OneRow, RowReader
from dmlgbm.gbdt.model.tree import TREE_ARRAYS, Tree
from dmlgbm.gbdt.model.tree_checks import check_arrays, check_header, check_trees
from dmlgbm.gbdt.threads import Workers

_NODE_ARRAYS = ("feature", "threshold", "missing_left", "categorical", "left", "right", "gain", "count")
_LEAF_ARRAYS = ("leaf_value", "leaf_count", "leaf_weight")
# (Measured with trees of 31 leaves that are laid out for one prediction, in segments and walked: 400 rows through 4
# trees 1.2 and 0.4 ms, through 40 trees 1.6 and 0.9 ms; 2,000 rows through 40 trees 1.9 and 2.3 ms.)
_ROWS_WORTH_SEGMENTS = 1_000


@dataclass(frozen=True, eq=False, repr=False)
class Booster:
    """Trees in the order they were grown; tree t adds to output t % n_outputs."""

    trees: tuple[Tree, ...]
    base_scores: npt.NDArray[np.float64]
    objective: str
    columns: Columns
    metadata: Mapping[str, Any] = field(default_factory=dict)
    averages: bool = False  # a score is the base score plus the mean over iterations, not their sum
    changed_rate: bool = False  # whether iterations were shrunk by different rates

    @property
    def n_features(self) -> int:
        return self.columns.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.columns.names

    @property
    def categories(self) -> Categories:
        """Of each feature, None for numbers."""
        return self.columns.categories

    @property
    def n_outputs(self) -> int:
        return len(self.base_scores)

    @property
    def n_iterations(self) -> int:
        return len(self.trees) // self.n_outputs

    @cached_property
    def forest(self) -> Forest:
        return self._laid_out(walked=False)

    def forest_for_once(self, n_rows: int) -> Forest:
        """The forest for one prediction of so many rows: how its trees are best laid out depends on them."""
        return self._laid_out(walked=n_rows < _ROWS_WORTH_SEGMENTS)

    def _laid_out(self, *, walked: bool) -> Forest:
        sizes = {feature: len(known) for feature, known in enumerate(self.categories) if known is not None}
        return Forest.from_trees(self.trees, self.n_outputs, self.n_features, sizes, walked=walked)

    def first(self, n_iterations: int) -> Booster:
        """The model as it was after that many iterations."""
        return replace(self, trees=self.trees[: n_iterations * self.n_outputs])

    def since(self, n_iterations: int) -> Booster:
        """The iterations after the first so many, as a model of their own."""
        return replace(self, trees=self.trees[n_iterations * self.n_outputs :])

    def raw_scores(
        self, table: Table, *, n_iterations: int | None = None, n_threads: int = 1, first_iteration: int = 0
    ) -> npt.NDArray[np.float64]:
        """Scores [output, row] after some or all iterations; the table's categories must be encoded.

        With a `first_iteration` above 0 they are what `n_iterations` from there on add: scores of stretches that follow
        one another add up to the model's, so the base scores belong to the first stretch. Where iterations are
        averaged, any stretch is a model of its own.
        """
        n_trees = None if n_iterations is None else n_iterations * self.n_outputs
        has_base = first_iteration == 0 and not self.averages
        base_scores = self.base_scores if has_base else np.zeros(self.n_outputs)
        first_tree = first_iteration * self.n_outputs
        with Workers(n_threads) as workers:
            sums = self.forest.raw_scores(table, base_scores, first_tree=first_tree, n_trees=n_trees, workers=workers)
        if not self.averages:
            return sums
        return self.averaged(sums, self.n_iterations - first_iteration if n_iterations is None else n_iterations)

    def averaged(
        self, sums: npt.NDArray[np.float64], n_iterations: int, first_scores: npt.NDArray[np.float64] | None = None
    ) -> npt.NDArray[np.float64]:
        """The scores of a model that averages, from the sums of so many iterations."""
        first = self.base_scores[:, None] if first_scores is None else first_scores
        return first + sums / max(n_iterations, 1)

    def nothing_added(self, n_rows: int) -> npt.NDArray[np.float64]:
        """What trees are added to: the base scores, or zeros where it is the sums that are kept."""
        first = np.zeros(self.n_outputs) if self.averages else self.base_scores
        return np.repeat(first[:, None], n_rows, axis=1)

    def staged_raw_scores(self, table: Table, n_threads: int = 1) -> Iterator[npt.NDArray[np.float64]]:
        """Scores [output, row] after the first iteration, after the second, and so on."""
        scores = self.nothing_added(table.n_rows)
        with Workers(n_threads) as workers:
            for iteration in range(self.n_iterations):
                scores = self.add_iteration(scores, table, iteration, workers)
                yield self.averaged(scores, iteration + 1) if self.averages else scores.copy()

    def add_iteration(
        self, scores: npt.NDArray[np.float64], table: Table, iteration: int, workers: Workers
    ) -> npt.NDArray[np.float64]:
        """The scores, or sums, with the trees of one iteration added."""
        first = iteration * self.n_outputs
        nothing = np.zeros(self.n_outputs)
        return scores + self.forest.raw_scores(
            table, nothing, first_tree=first, n_trees=self.n_outputs, workers=workers
        )

    def leaf_indices(self, table: Table, n_threads: int = 1) -> npt.NDArray[np.int32]:
        """The leaf of each row in each tree, [row, tree]."""
        with Workers(n_threads) as workers:
            return self.forest.leaf_indices(table, workers)

    def one_row(self, reader: RowReader, link: Link, n_iterations: int) -> OneRow:
        """What predicts single rows with the first iterations; `reader` knows their values."""
        n_trees = n_iterations * self.n_outputs
        trees = self._laid_out(walked=True).walked_trees(self.base_scores, reader.features, n_trees)
        if self.averages:
            trees = trees._replace(divisor=np.array([max(n_iterations, 1)], np.float64))
        return OneRow(reader, trees, link)

    def feature_importance(self, importance_type: Literal["split", "gain"]) -> npt.NDArray[np.float64]:
        """How often each feature splits, or the total gain of its splits."""
        features = np.concatenate([np.zeros(0, np.int32), *(tree.feature for tree in self.trees)])
        gains = np.concatenate([np.zeros(0), *(tree.gain for tree in self.trees)])
        return np.bincount(features, None if importance_type == "split" else gains, self.n_features).astype(np.float64)

    def to_bytes(self) -> bytes:
        """The model file's content; equal models have equal bytes."""
        trees = self.trees
        arrays = {name: _joined([getattr(tree, name) for tree in trees], name) for name in TREE_ARRAYS}
        arrays["category_start"] = _joined([np.diff(tree.category_start) for tree in trees], "category_start")
        arrays["tree_nodes"] = np.array([tree.n_nodes for tree in trees], np.int32)
        arrays["base_scores"] = self.base_scores
        header = {
            "objective": self.objective,
            "n_features": self.n_features,
            "feature_names": self.feature_names,
            "categories": self.categories,
            "metadata": self.metadata,
        }
        if self.averages:
            header["averages"] = True
        if self.changed_rate:
            header["changed_rate"] = True
        return model_bytes(header, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Booster:
        """Read a model; anything that is not one raises ModelFileError and executes nothing."""
        header, arrays = parse_model_bytes(data)
        try:
            return cls._from_parts(header, arrays)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"the file is a DMLGBM file but does not hold a tree model: {error}") from error

    @classmethod
    def _from_parts(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Booster:
        check_header(header)
        check_arrays(arrays)
        names = header["feature_names"]
        categories = tuple(None if known is None else tuple(known) for known in header["categories"])
        trees = _split_trees(arrays)
        check_trees(trees, int(header["n_features"]), categories, arrays["base_scores"])
        return cls(
            trees=trees,
            base_scores=arrays["base_scores"],
            objective=str(header["objective"]),
            columns=Columns(None if names is None else tuple(names), categories),
            metadata=header["metadata"],
            averages="averages" in header,
            changed_rate="changed_rate" in header,
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.n_iterations} iterations, {len(self.trees)} trees, {self.n_features} "
            f"features, objective {self.objective!r}>"
        )

    def __eq__(self, other: object) -> bool:
        """Models are equal if their files are."""
        if not isinstance(other, Booster):
            return NotImplemented
        return self is other or (hash(self) == hash(other) and self.to_bytes() == other.to_bytes())

    def __hash__(self) -> int:
        counts = self.n_features, len(self.trees), sum(tree.n_nodes for tree in self.trees)
        return hash((*counts, self.objective, self.feature_names, self.base_scores.tobytes()))

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the forest, which is made again on first use."""
        return {name: value for name, value in self.__dict__.items() if name != "forest"}


def _joined(parts: Sequence[npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    dtypes: dict[str, type[np.generic]] = {
        "threshold": np.float64,
        "gain": np.float64,
        "leaf_value": np.float64,
        "leaf_weight": np.float64,
        "count": np.int64,
        "leaf_count": np.int64,
        "missing_left": np.uint8,
        "categorical": np.uint8,
    }
    return np.concatenate([np.zeros(0, dtypes.get(name, np.int32)), *parts])


def _split_trees(arrays: dict[str, npt.NDArray[Any]]) -> tuple[Tree, ...]:
    """Cut the joined arrays of a file into trees; sizes that do not add up raise."""
    tree_nodes = arrays["tree_nodes"].astype(np.int64)
    if np.any(tree_nodes < 0) or np.any(tree_nodes > len(arrays["feature"])):
        raise ModelFileError("the model file has a tree of impossible size")
    node_ends, leaf_ends = np.cumsum(tree_nodes), np.cumsum(tree_nodes + 1)
    n_nodes, n_leaves = int(tree_nodes.sum()), int((tree_nodes + 1).sum())
    wrong = [name for name in (*_NODE_ARRAYS, "category_start") if len(arrays[name]) != n_nodes]
    wrong += [name for name in _LEAF_ARRAYS if len(arrays[name]) != n_leaves]
    lengths = arrays["category_start"].astype(np.int64)
    if wrong or np.any(lengths < 0) or lengths.sum() != len(arrays["categories"]):
        raise ModelFileError("the model file's arrays do not fit together")
    code_ends = np.concatenate(([0], np.cumsum(lengths)))
    trees = []
    for node_end, leaf_end, size in zip(node_ends, leaf_ends, tree_nodes, strict=True):
        node_start, leaf_start = node_end - size, leaf_end - size - 1
        parts = {name: arrays[name][node_start:node_end] for name in _NODE_ARRAYS}
        parts |= {name: arrays[name][leaf_start:leaf_end] for name in _LEAF_ARRAYS}
        codes = code_ends[node_start : node_end + 1]
        parts["category_start"] = (codes - codes[0]).astype(np.int32)
        parts["categories"] = arrays["categories"][codes[0] : codes[-1]]
        trees.append(Tree(**parts))
    return tuple(trees)

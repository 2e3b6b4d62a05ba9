"""The model inside a fitted estimator, as users meet it: it predicts whatever table they pass, and knows its file.

What takes a model apart or fits it again stands in files of its own, which are loaded when they are needed: workers
that only predict do without them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt import booster as engine
from dmlgbm.gbdt.objectives import transform
from dmlgbm.gbdt.system.atomic_file import write_atomically
from dmlgbm.sklearn_api.parameters.values import Stretch, n_threads_of
from dmlgbm.sklearn_api.rows.targets import FloatArray
from dmlgbm.sklearn_api.tables.matching import table_like

if TYPE_CHECKING:
    from dmlgbm.gbdt.callbacks import Evaluation
    from dmlgbm.sklearn_api.functional.dataset import Dataset


class Booster(engine.Booster):
    """Trees, without the labels of classes and the parameters that an estimator has.

    `best_iteration` is where early stopping of `train` found it best, 0 otherwise; `best_score` is what was measured
    there, by set and metric, or after the last iteration; `params` are those of `train`.
    """

    best_iteration = 0
    best_score: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    params: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, model: engine.Booster) -> Self:
        """The same model as an object of this class."""
        if isinstance(model, cls):
            return model
        own = object.__new__(cls)
        vars(own).update(vars(model))
        return own

    def described(
        self,
        best_iteration: int | None,
        best_score: Mapping[str, Mapping[str, float]],
        params: Mapping[str, Any] | None,
    ) -> Self:
        """The same model, and how it came about."""
        own = object.__new__(type(self))
        vars(own).update(vars(self), best_iteration=best_iteration or 0, best_score=best_score, params=params)
        return own

    @classmethod
    def load_model(cls, path: str | os.PathLike[str]) -> Self:
        """The trees in a file of `save_model`, of a Booster or an estimator, or of the callback `checkpoint`."""
        from dmlgbm.sklearn_api.saved_state import booster_from_file

        return cls.of(booster_from_file(path))

    def save_model(
        self, path: str | os.PathLike[str], num_iteration: int | None = None, start_iteration: int = 0
    ) -> None:
        """Write the trees to one file that holds no code; `Booster.load_model` reads it.

        Without `num_iteration` up to the best iteration, as predictions go; 0 or below is all of them.
        """
        stretch = self._stretch(start_iteration, num_iteration)
        whole = stretch.first == 0 and stretch.n_iterations == self.n_iterations
        model = self if whole else self[stretch.first : stretch.first + stretch.n_iterations]
        write_atomically(path, model.to_bytes())

    def predict(
        self,
        X: Any,
        start_iteration: int = 0,
        num_iteration: int | None = None,
        raw_score: bool = False,
        n_jobs: int | None = None,
        *,
        pred_leaf: bool = False,
    ) -> npt.NDArray[Any]:
        """The prediction for each row: a number, the probability of the second class or, [row, class], those of all.

        `num_iteration` iterations from `start_iteration` on are added up; by default all, or up to the best one.
        `raw_score` gives the scores before any link function, `pred_leaf` the leaf of each tree instead, [row, tree].
        """
        table = table_like(X, self.columns, "missing", estimator_name=type(self).__name__)
        stretch = self._stretch(start_iteration, num_iteration)
        if pred_leaf:
            return self._part(stretch).leaf_indices(table, n_threads_of(n_jobs))
        score = self.raw_scores(
            table,
            first_iteration=stretch.first,
            n_iterations=stretch.n_iterations,
            n_threads=n_threads_of(n_jobs),
        )
        prediction = score if raw_score else transform(self.objective, score)
        return prediction[0] if len(prediction) == 1 else prediction.T

    def eval(
        self,
        data: Dataset,
        name: str,
        feval: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> list[Evaluation]:
        """The metrics of `params` and `feval` on rows: (name, metric, value, higher_is_better) of each.

        `params` are those that the Booster was trained with, unless given.
        """
        from dmlgbm.sklearn_api.functional.labelled_rows import evaluated

        return evaluated(self, data, name, feval, params)

    def __getitem__(self, iterations: int | slice) -> Self:
        """Some iterations as a model of their own; the scores that training started from belong to the first one.

        Where iterations are averaged, any of them are a model that starts from these scores.
        """
        if isinstance(iterations, slice):
            numbers = range(self.n_iterations)[iterations]
            if not numbers or numbers.step < 0:
                raise ValueError(f"{iterations} of {self.n_iterations} iterations must hold one at least, in order.")
        else:
            number = iterations + self.n_iterations if iterations < 0 else iterations
            if not 0 <= number < self.n_iterations:
                raise IndexError(f"iteration {iterations} is out of range: there are {self.n_iterations}, from 0 on.")
            numbers = range(number, number + 1)
        size = self.n_outputs
        trees = tuple(tree for number in numbers for tree in self.trees[number * size : (number + 1) * size])
        base_scores = self.base_scores if numbers[0] == 0 or self.averages else np.zeros(size)
        return replace(self, trees=trees, base_scores=base_scores, metadata={}).described(None, {}, self.params)

    def __add__(self, other: object) -> Booster:
        """The trees of both, whose raw scores add up."""
        from dmlgbm.sklearn_api.functional.merging import merge

        return merge(self, other) if isinstance(other, Booster) else NotImplemented

    def get_leaf_output(self, tree_id: int, leaf_id: int) -> float:
        """The value of a leaf, in the numbering of `predict(X, pred_leaf=True)`."""
        for name, number, n in (
            ("tree_id", tree_id, len(self.trees)),
            ("leaf_id", leaf_id, self.trees[tree_id].n_leaves if 0 <= tree_id < len(self.trees) else 0),
        ):
            if not 0 <= number < n:
                raise ValueError(f"{name}={number} is out of range: there are {n}, from 0 on.")
        return float(self.trees[tree_id].leaf_value[leaf_id])

    def trees_to_dataframe(self) -> Any:
        """All nodes and leaves as a pandas DataFrame with LightGBM's columns, a row for each."""
        from dmlgbm.sklearn_api.functional.tree_listing import frame_of

        return frame_of(self)

    trees_to_frame = trees_to_dataframe

    def dump_model(self, num_iteration: int | None = None, start_iteration: int = 0) -> dict[str, Any]:
        """The model as a dictionary of plain values, with LightGBM's keys."""
        from dmlgbm.sklearn_api.functional.tree_listing import dump_of

        stretch = self._stretch(start_iteration, num_iteration)
        return dump_of(self, stretch.first, stretch.n_iterations)

    def refit(
        self,
        data: Any,
        label: Any,
        decay_rate: float = 0.9,
        weight: Any = None,
        group: Any = None,
        init_score: Any = None,
        *,
        qid: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> Booster:
        """The same trees, up to the best iteration, with values of their leaves fitted again on these rows.

        A new value is `decay_rate` of the old one and the rest of what these rows ask for. Leaves that none of them
        reaches keep theirs. `params` are those that the Booster was trained with, unless given.
        """
        from dmlgbm.sklearn_api.functional.labelled_rows import refitted_booster

        return refitted_booster(
            self, data, label, decay_rate, params, weight=weight, group=group, init_score=init_score, qid=qid
        )

    def current_iteration(self) -> int:
        """The number of iterations."""
        return self.n_iterations

    def num_trees(self) -> int:
        """The number of trees."""
        return len(self.trees)

    def num_model_per_iteration(self) -> int:
        """The number of trees of an iteration: one for each score of a row."""
        return self.n_outputs

    def num_feature(self) -> int:
        """The number of columns."""
        return self.n_features

    def feature_name(self) -> list[str]:
        """The names of the columns: "Column_0", ... if they have none."""
        return self.columns.listed_names

    def feature_importance(
        self, importance_type: Literal["split", "gain"] = "split", iteration: int | None = None
    ) -> FloatArray:
        """How often each feature splits, or the total gain of its splits, in the first iterations or in all."""
        if importance_type not in ("split", "gain"):
            raise ValueError(f"importance_type={importance_type!r} is not one of 'split', 'gain'.")
        if iteration is None:
            return super().feature_importance(importance_type)
        part = self._part(Stretch.asked(0, iteration, self.n_iterations))
        return engine.Booster.feature_importance(part, importance_type)

    def __getstate__(self) -> dict[str, Any]:
        """Without functions among the parameters, which may be known to this process alone."""
        state = super().__getstate__()
        if self.params is not None:
            state["params"] = {name: value for name, value in self.params.items() if not callable(value)}
        return state

    def _stretch(self, start_iteration: int, num_iteration: int | None) -> Stretch:
        return Stretch.asked(start_iteration, num_iteration, self.n_iterations, self.best_iteration or None)

    def _part(self, stretch: Stretch) -> Booster:
        first, last = (n * self.n_outputs for n in (stretch.first, stretch.first + stretch.n_iterations))
        return replace(self, trees=self.trees[first:last])

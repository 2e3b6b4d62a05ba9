"""How fitted trees predict, for the estimators and for workers alike.

The estimators inherit these methods. `shipped` gives an object that has nothing but them and what they need (trees,
columns, class labels): that is what goes to the workers of a cluster, which so load neither scikit-learn nor anything
that the model was made with. Nothing here may import them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.table import Table
from dmlgbm.gbdt.model.one_row import Link, OneRow
from dmlgbm.gbdt.objectives import EXPONENTIAL, transform
from dmlgbm.sklearn_api.booster import Booster as FittedBooster
from dmlgbm.sklearn_api.clusters.lazy_predictions import lazy_on_collections, of_classes, staged_on_collections
from dmlgbm.sklearn_api.dispatch import snapshot
from dmlgbm.sklearn_api.parameters.values import Stretch, n_threads_of
from dmlgbm.sklearn_api.rows.labels import Labels
from dmlgbm.sklearn_api.rows.targets import FloatArray
from dmlgbm.sklearn_api.tables.matching import table_like
from dmlgbm.sklearn_api.tables.single_rows import reader_of


class TreePredictions:
    """What all models have: leaves and raw scores."""

    booster_: Booster
    best_iteration_: int | None
    n_jobs: int | None
    handle_unknown: Literal["missing", "error"]

    @lazy_on_collections()
    def apply(self, X: Any) -> npt.NDArray[np.int32]:
        """The leaf that each row reaches in each tree, [row, tree]; the trees of one iteration stand side by side."""
        table = self._table_to_predict(X)
        leaves = self.booster_.leaf_indices(table, n_threads_of(self.n_jobs))
        return leaves[:, : self._stretch(0, None).n_iterations * self.booster_.n_outputs]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        if "booster_" in state:
            state["booster_"] = state["booster_"].to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "booster_" in state:
            state = {**state, "booster_": FittedBooster.from_bytes(state["booster_"])}
        restore = getattr(super(), "__setstate__", vars(self).update)
        restore(state)

    def _with_threads(self, n_threads: int) -> Self:
        """The same model, for a call of its own; it shares everything but the number of threads."""
        own = object.__new__(type(self))
        vars(own).update(vars(self), n_jobs=n_threads)
        return own

    def _table_to_predict(self, X: Any) -> Table:
        return self._table_like(self.booster_.columns, X)

    def _table_like(self, columns: Columns, X: Any, name: str = "X") -> Table:
        return table_like(X, columns, self.handle_unknown, estimator_name=self._name(), name=name)

    def _name(self) -> str:
        """What messages call the estimator."""
        return str(vars(self).get("_name_of_estimator", type(self).__name__))

    def _stretch(self, start_iteration: int, num_iteration: int | None) -> Stretch:
        """The iterations to predict with: up to the best one if early stopping found it, unless told otherwise."""
        return Stretch.asked(start_iteration, num_iteration, self.booster_.n_iterations, self.best_iteration_)

    def _raw_scores(self, X: Any, num_iteration: int | None = None, start_iteration: int = 0) -> FloatArray:
        """Scores before any link function, [output, row]."""
        return self._scores_of(X, self._stretch(start_iteration, num_iteration))

    def _scores_of(self, X: Any, stretch: Stretch) -> FloatArray:
        return self.booster_.raw_scores(
            self._table_to_predict(X),
            first_iteration=stretch.first,
            n_iterations=stretch.n_iterations,
            n_threads=n_threads_of(self.n_jobs),
        )

    def _one_row(self, kind: Literal["classes", "value", "score"]) -> OneRow:
        is_rate = kind == "value" and self.booster_.objective in EXPONENTIAL
        link: Link = "classes" if kind == "classes" else "exponential" if is_rate else "none"
        reader = reader_of(self.booster_.columns, self.handle_unknown, self._name())
        return self.booster_.one_row(reader, link, self._stretch(0, None).n_iterations)

    def _staged_raw_scores(self, X: Any) -> Iterator[FloatArray]:
        table = self._table_to_predict(X)
        return self.booster_.staged_raw_scores(table, n_threads_of(self.n_jobs))


class ClassPredictions(TreePredictions):
    """Labels and probabilities."""

    classes_: Labels

    @lazy_on_collections(of_classes)
    def predict(
        self, X: Any, raw_score: bool = False, num_iteration: int | None = None, start_iteration: int = 0
    ) -> npt.NDArray[Any]:
        """The most probable class of each row, or with `raw_score` the scores behind the probabilities.

        `num_iteration` and `start_iteration` choose the iterations that count; by default all, or up to the best one.
        """
        score = self._raw_scores(X, num_iteration, start_iteration)
        return _by_row(score) if raw_score else self._labels(score)

    @lazy_on_collections(of_classes)
    def predict_proba(
        self, X: Any, raw_score: bool = False, num_iteration: int | None = None, start_iteration: int = 0
    ) -> FloatArray:
        """The probability of each class, [row, class]; the other arguments are those of `predict`."""
        score = self._raw_scores(X, num_iteration, start_iteration)
        return _by_row(score) if raw_score else _probabilities(score)

    @lazy_on_collections(of_classes)
    def predict_log_proba(self, X: Any, num_iteration: int | None = None, start_iteration: int = 0) -> FloatArray:
        """The logarithm of each class's probability, [row, class]; finite also where the probability rounds to zero."""
        score = self._raw_scores(X, num_iteration, start_iteration)
        if len(score) == 1:
            score = np.stack([np.zeros_like(score[0]), score[0]])
        return (score - np.logaddexp.reduce(score, axis=0)).T

    @lazy_on_collections(of_classes)
    def decision_function(self, X: Any, num_iteration: int | None = None, start_iteration: int = 0) -> FloatArray:
        """The scores behind the probabilities: the log odds of the second of two classes, or one for each class."""
        return _by_row(self._raw_scores(X, num_iteration, start_iteration))

    @staged_on_collections("predict")
    def staged_predict(self, X: Any) -> Iterator[npt.NDArray[Any]]:
        """The predictions after each iteration."""
        return map(self._labels, self._staged_raw_scores(X))

    @staged_on_collections("predict_proba")
    def staged_predict_proba(self, X: Any) -> Iterator[FloatArray]:
        """The probabilities after each iteration."""
        return map(_probabilities, self._staged_raw_scores(X))

    def one_row(self) -> Callable[[Any], FloatArray]:
        """What predicts single rows in microseconds: a function of a row that returns the probability of each class.

        A row is a dict (or whatever else has `keys`) by column name, or a list, tuple or array of values in the order
        of the columns. The probabilities are in the order of `classes_` and have the bits of `predict_proba`. A later
        fit does not change the function.
        """
        return snapshot(self)._one_row("classes")

    def _labels(self, score: FloatArray) -> npt.NDArray[Any]:
        # Of equally probable classes the first is predicted.
        numbers = (score[0] > 0).astype(np.intp) if len(score) == 1 else score.argmax(axis=0)
        return self.classes_[numbers]


class ValuePredictions(TreePredictions):
    """Numbers."""

    @lazy_on_collections()
    def predict(
        self, X: Any, raw_score: bool = False, num_iteration: int | None = None, start_iteration: int = 0
    ) -> FloatArray:
        """The prediction for each row; `raw_score` is before the exponential of "poisson", "cox" and "aft".

        `num_iteration` and `start_iteration` choose the iterations that count; by default all, or up to the best one.
        """
        score = self._raw_scores(X, num_iteration, start_iteration)
        return score[0] if raw_score else self._predictions(score)

    @staged_on_collections("predict")
    def staged_predict(self, X: Any) -> Iterator[FloatArray]:
        """The predictions after each iteration."""
        return map(self._predictions, self._staged_raw_scores(X))

    def one_row(self) -> Callable[[Any], float]:
        """What predicts single rows in microseconds: a function of a row that returns a number, that of `predict`.

        A row is a dict (or whatever else has `keys`) by column name, or a list, tuple or array of values in the order
        of the columns. A later fit does not change the function.
        """
        return snapshot(self)._one_row("value")

    def _predictions(self, score: FloatArray) -> FloatArray:
        return transform(self.booster_.objective, score)[0]


class RankPredictions(TreePredictions):
    """Scores within a query."""

    @lazy_on_collections()
    def predict(
        self, X: Any, raw_score: bool = False, num_iteration: int | None = None, start_iteration: int = 0
    ) -> FloatArray:
        """The score of each row; within a query, a higher score is a better position. `raw_score` changes nothing.

        `num_iteration` and `start_iteration` choose the iterations that count; by default all, or up to the best one.
        """
        return self._raw_scores(X, num_iteration, start_iteration)[0]

    @staged_on_collections("predict")
    def staged_predict(self, X: Any) -> Iterator[FloatArray]:
        """The scores after each iteration."""
        return (score[0] for score in self._staged_raw_scores(X))

    def one_row(self) -> Callable[[Any], float]:
        """What scores single rows in microseconds: a function of a row that returns a number, that of `predict`.

        A row is a dict (or whatever else has `keys`) by column name, or a list, tuple or array of values in the order
        of the columns. A later fit does not change the function.
        """
        return snapshot(self)._one_row("score")


_KINDS = (ClassPredictions, ValuePredictions, RankPredictions)
_FITTED = ("booster_", "best_iteration_", "classes_", "handle_unknown")


def shipped(estimator: Any) -> TreePredictions:
    """What of a fitted estimator predicts, as it is now: a later fit does not change it."""
    kind = next(each for each in type(estimator).__mro__ if each in _KINDS)
    model: TreePredictions = object.__new__(kind)
    state = vars(estimator)
    vars(model).update({name: state[name] for name in _FITTED if name in state}, _name_of_estimator=estimator._name())
    return model


def _by_row(score: FloatArray) -> FloatArray:
    return score[0] if len(score) == 1 else score.T


def _probabilities(score: FloatArray) -> FloatArray:
    if len(score) > 1:
        return transform("multiclass", score).T
    of_second = transform("binary", score)[0]
    return np.stack([1.0 - of_second, of_second], axis=1)

"""The model inside a fitted estimator, as users meet it: it predicts whatever table they pass, and knows its file."""

from __future__ import annotations

import os
from typing import Any, Self

from dmlgbm.gbdt import booster as engine
from dmlgbm.gbdt.objectives import transform
from dmlgbm.gbdt.system.atomic_file import write_atomically
from dmlgbm.sklearn_api.parameters.values import Stretch, n_threads_of
from dmlgbm.sklearn_api.rows.targets import FloatArray
from dmlgbm.sklearn_api.tables.matching import table_like


class Booster(engine.Booster):
    """Trees, without the labels of classes and the parameters that an estimator has."""

    @classmethod
    def of(cls, model: engine.Booster) -> Self:
        """The same model as an object of this class."""
        if isinstance(model, cls):
            return model
        own = object.__new__(cls)
        vars(own).update(vars(model))
        return own

    @classmethod
    def load_model(cls, path: str | os.PathLike[str]) -> Self:
        """The trees in a file of `save_model`, of a Booster or an estimator, or of the callback `checkpoint`."""
        from dmlgbm.sklearn_api.saved_state import booster_from_file

        return cls.of(booster_from_file(path))

    def save_model(self, path: str | os.PathLike[str]) -> None:
        """Write the trees to one file that holds no code; `Booster.load_model` reads it."""
        write_atomically(path, self.to_bytes())

    def predict(
        self,
        X: Any,
        start_iteration: int = 0,
        num_iteration: int | None = None,
        raw_score: bool = False,
        n_jobs: int | None = None,
    ) -> FloatArray:
        """The prediction for each row: a number, the probability of the second class or, [row, class], those of all.

        `num_iteration` iterations from `start_iteration` on are added up, all of them by default. `raw_score` gives the
        scores before any link function.
        """
        table = table_like(X, self.columns, "missing", estimator_name=type(self).__name__)
        stretch = Stretch.asked(start_iteration, num_iteration, self.n_iterations)
        score = self.raw_scores(
            table,
            first_iteration=stretch.first,
            n_iterations=stretch.n_iterations,
            n_threads=n_threads_of(n_jobs),
        )
        prediction = score if raw_score else transform(self.objective, score)
        return prediction[0] if len(prediction) == 1 else prediction.T

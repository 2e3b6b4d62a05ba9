"""Rows as the user passes them: the arguments of `fit` that hold something for each row, as messages call them too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.data.table import Table
from dmlgbm.sklearn_api.rows.targets import FloatArray, IntArray, position_vector, score_matrix, weight_vector


@dataclass(frozen=True)
class GivenRows:
    """Rows to learn from, or those of an evaluation set, which has a label: "eval_set[0]"."""

    X: Any
    y: Any
    sample_weight: Any = None
    init_score: Any = None
    group: Any = None
    qid: Any = None
    label: str = ""
    position: Any = None

    def called(self, argument: str) -> str:
        """What messages call an argument: "sample_weight", or "eval_sample_weight of eval_set[0]"."""
        if not self.label:
            return argument
        return f"{argument if argument in ('X', 'y') else f'eval_{argument}'} of {self.label}"

    def checked(self, table: Table, target: FloatArray, n_outputs: int, group_starts: IntArray | None = None) -> Rows:
        """The rows in the engine's types."""
        return Rows(
            table,
            target,
            weight_vector(self.sample_weight, table.n_rows, self.called("sample_weight")),
            score_matrix(self.init_score, table.n_rows, n_outputs, self.called("init_score")),
            group_starts,
            position=position_vector(self.position, table.n_rows),
        )

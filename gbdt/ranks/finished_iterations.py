"""What a loss has learnt from iterations that were finished before, besides their trees: biases of positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlgbm.gbdt.boosting.local_run import loss_over
from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.objectives import Objective, ObjectiveSettings
from dmlgbm.gbdt.objectives.protocol import FloatArray
from dmlgbm.gbdt.objectives.ranking import LambdaRank
from dmlgbm.gbdt.ranks.rank_data import RankData
from dmlgbm.gbdt.threads import Workers

_NOTHING_IS_DRAWN = np.uint64(0)


class BiasReplay:
    """Learns biases anew from the scores at which each finished iteration was grown, without growing a tree."""

    def __init__(self, loss: LambdaRank, n_rows: int, workers: Workers) -> None:
        self._loss = loss
        self._workers = workers
        self._gradients, self._hessians = np.empty((2, 1, n_rows), np.float32)

    def __call__(self, scores: FloatArray) -> None:
        """One iteration was grown at these scores."""
        self._loss.compute_gradients(scores, self._gradients, self._hessians, self._workers, _NOTHING_IS_DRAWN)

    def hand_on(self, loss: Objective) -> None:
        """Let the loss go on from what was learnt."""
        assert isinstance(loss, LambdaRank)
        assert loss.biases is not None
        assert self._loss.biases is not None
        loss.biases.values = self._loss.biases.values


def replayed_biases(
    data: RankData,
    rows: Rows,
    objective: ObjectiveSettings,
    trees: Sequence[Tree],
    precision: str,
    workers: Workers,
    exchange: Exchange,
) -> BiasReplay | None:
    """What goes through finished iterations once more, if something is learnt from them besides trees."""
    if rows.position is None or not trees:
        return None
    loss = loss_over(rows, objective, precision, data.segments, exchange)
    assert isinstance(loss, LambdaRank)
    return BiasReplay(loss, rows.n_rows, workers)

"""Where a fit stands after the iterations that were finished before: scores, and what its loss has learnt from them."""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.boosting.binned_scores import add_trees
from dmlgbm.gbdt.boosting.local_run import loss_over
from dmlgbm.gbdt.data.exchange import Exchange
from dmlgbm.gbdt.data.rows import Rows
from dmlgbm.gbdt.growth.row_arrays import row_arrays
from dmlgbm.gbdt.model.tree import Tree
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.objectives.protocol import FloatArray
from dmlgbm.gbdt.objectives.ranking import LambdaRank
from dmlgbm.gbdt.ranks.rank_data import RankData
from dmlgbm.gbdt.threads import Workers

_NOTHING_IS_DRAWN = np.uint64(0)


def add_finished(
    data: RankData,
    rows: Rows,
    objective: ObjectiveSettings,
    trees: tuple[Tree, ...],
    scores: FloatArray,
    precision: str,
    workers: Workers,
    exchange: Exchange,
) -> FloatArray | None:
    """Add finished trees to the scores of the rows here; the biases of positions after them, if there are any.

    Biases depend on the scores of every iteration. So these are gone through once more, without growing a tree.
    """
    if rows.position is None or not trees:
        add_trees(data.dataset, trees, scores)
        return None
    loss = loss_over(rows, objective, precision, data.segments, exchange)
    assert isinstance(loss, LambdaRank)
    assert loss.biases is not None
    arrays = row_arrays(loss, scores)
    for tree in trees:
        loss.compute_gradients(scores, arrays.gradients, arrays.hessians, workers, _NOTHING_IS_DRAWN)
        add_trees(data.dataset, (tree,), scores)
    return loss.biases.values

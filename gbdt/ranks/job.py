"""A fit on a cluster as a record: what is trained, on which rows, in which mode, and what came of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from dmlgbm.gbdt.booster import Booster
from dmlgbm.gbdt.boosting.loop import TrainingResult
from dmlgbm.gbdt.data.columns import Columns
from dmlgbm.gbdt.data.feature_bins import NumericBins
from dmlgbm.gbdt.data.partition_binning import BinningPlan
from dmlgbm.gbdt.metrics import Metric
from dmlgbm.gbdt.objectives import ObjectiveSettings
from dmlgbm.gbdt.parameters import BinningParameters, TrainParameters
from dmlgbm.gbdt.ranks.checkpoints import CheckpointFile, fingerprint_of
from dmlgbm.gbdt.ranks.column_shares import most_columns
from dmlgbm.gbdt.ranks.cost_model import Link, Plan, Workload, choose_tree_learner
from dmlgbm.gbdt.ranks.fit_report import FitReport
from dmlgbm.gbdt.ranks.rank import RankTask
from dmlgbm.gbdt.ranks.row_set import RowSet

logger = logging.getLogger("dmlgbm")

AnyRows = TypeVar("AnyRows", bound=RowSet)


@dataclass(frozen=True)
class ClusterJob(Generic[AnyRows]):
    """Everything that a fit on a cluster consists of."""

    parameters: TrainParameters  # n_estimators are those to add
    binning: BinningParameters
    objective: ObjectiveSettings
    columns: Columns
    training: AnyRows
    evaluation: tuple[tuple[str, AnyRows], ...] = ()
    metrics: tuple[Metric, ...] = ()
    initial_model: Booster | None = None
    tree_learner: str = "auto"
    top_k: int = 20
    n_jobs: int | None = None
    max_restarts: int = 3
    checkpoint_dir: str | None = None
    refit_after_stopping: bool = False

    def refit_task(self, plan: BinningPlan, tree_learner: str, result: TrainingResult) -> RankTask:
        """What every rank is told when the trees have been chosen and their leaves are fitted again."""
        chosen = result.booster.first(result.best_iteration or result.booster.n_iterations)
        return replace(self.rank_task(plan, tree_learner), to_refit=chosen)

    def rank_task(self, plan: BinningPlan, tree_learner: str) -> RankTask:
        """What every rank is told."""
        return RankTask(
            parameters=self.parameters,
            objective=self.objective,
            plan=plan,
            columns=self.columns,
            n_total_rows=self.training.n_rows,
            metrics=self.metrics,
            tree_learner=tree_learner,  # type: ignore[arg-type]
            top_k=self.top_k,
            initial_model=self.initial_model,
        )

    def mode(self, plan: BinningPlan, n_ranks: int, link: Link) -> Plan:
        """The parallel mode that was asked for, or the cheapest for ranks with this link, with the reasons."""
        storage = plan.storage
        bins = storage.layout["bins"].astype(int)
        workload = Workload(
            n_rows=self.training.n_rows,
            n_features=len(storage.features),
            n_bins=int(bins.sum()),
            n_leaves=self.parameters.num_leaves,
            n_ranks=n_ranks,
            n_trees=self.parameters.n_estimators,
            top_k=self.top_k,
            n_category_bins=int(bins[storage.layout["categorical"] != 0].sum()),
            n_columns=most_columns(storage, 1),
            most_columns=most_columns(storage, n_ranks),
        )
        chosen = choose_tree_learner(workload, link)
        if self.tree_learner != "auto":
            asked = f"{chosen.reasons}\nused: {self.tree_learner}, as tree_learner says"
            chosen = replace(chosen, tree_learner=self.tree_learner, reasons=asked)
        logger.info("tree_learner=%r on %d ranks\n%s", chosen.tree_learner, n_ranks, chosen.reasons)
        return chosen

    def checkpoint_file(self, plan: BinningPlan, digest: int) -> CheckpointFile | None:
        """The file of this fit, where there is a folder for it; `digest` is that of all targets."""
        if self.checkpoint_dir is None:
            return None
        bins = (each.cuts if isinstance(each, NumericBins) else repr(each) for each in plan.bins)
        return CheckpointFile(
            self.checkpoint_dir,
            fingerprint_of(
                (
                    replace(self.parameters, n_threads=1),
                    self.objective,
                    self.columns.names,
                    self.training.n_rows,
                    digest,
                    "voting" if self.tree_learner == "voting" else "exact",
                    b"" if self.initial_model is None else self.initial_model.to_bytes(),
                    *bins,
                )
            ),
        )


@dataclass(frozen=True)
class ClusterResult:
    """The trained model, why this parallel mode was chosen, and what it took."""

    training: TrainingResult
    plan: Plan
    report: FitReport

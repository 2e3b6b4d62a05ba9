"""What training minimises: gradients and hessians of each loss, its first scores and what its scores mean."""

from __future__ import annotations

from dmlgbm.gbdt.objectives.factory import ObjectiveSettings, objective_for
from dmlgbm.gbdt.objectives.protocol import Objective
from dmlgbm.gbdt.objectives.targets import RowError
from dmlgbm.gbdt.objectives.transform import EXPONENTIAL, transform

__all__ = ["EXPONENTIAL", "Objective", "ObjectiveSettings", "RowError", "objective_for", "transform"]

"""What training minimises: gradients and hessians of each loss, its first scores and what its scores mean."""

from __future__ import annotations

from gbdt.objectives.factory import ObjectiveSettings, objective_for
from gbdt.objectives.protocol import Objective
from gbdt.objectives.targets import RowError
from gbdt.objectives.transform import transform

__all__ = ["Objective", "ObjectiveSettings", "RowError", "objective_for", "transform"]

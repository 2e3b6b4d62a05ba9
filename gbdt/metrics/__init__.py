"""Exact evaluation metrics: values that do not depend on the order, the chunking or the place of the rows."""

from __future__ import annotations

from dmlgbm.gbdt.metrics.metric import Metric
from dmlgbm.gbdt.metrics.registry import default_metric, is_metric, metrics_for

__all__ = ["Metric", "default_metric", "is_metric", "metrics_for"]

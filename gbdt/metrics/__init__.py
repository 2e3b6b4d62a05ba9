"""Exact evaluation metrics: values that do not depend on the order, the chunking or the place of the rows."""

from __future__ import annotations

from dmlgbm.gbdt.metrics.registry import Metric, default_metric, metrics_for

__all__ = ["Metric", "default_metric", "metrics_for"]

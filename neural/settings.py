"""What a run is told besides model, data and strategy: a plain record that travels to every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dmlgbm.neural.batches import Sampling
from dmlgbm.neural.schedules import ScheduleName


@dataclass(frozen=True)
class TrainingSettings:
    """Checked by the estimators; everything in it can be pickled.

    `batch_size` counts the rows of all ranks together. `l2` is a penalty on the weights, as part of the gradient;
    `clip_norm` bounds the length of the whole gradient.
    `compression` and `compression_options` name a codec of `collectives.compression` that carries what strategies sum.
    Training stops early when the validation score has not risen by `tolerance` for `patience` epochs (None: never);
    without validation rows minus the training loss takes its place. A score of `target_score` ends training at once.
    """

    max_epochs: int
    batch_size: int
    learning_rate: float
    optimiser: str
    optimiser_options: Mapping[str, Any] = field(default_factory=dict)
    schedule: ScheduleName = "constant"
    warmup_steps: int = 0
    sampling: Sampling = "reshuffle"
    l2: float = 0.0
    clip_norm: float | None = None
    compression: str | None = None
    compression_options: Mapping[str, Any] = field(default_factory=dict)
    patience: int | None = None
    tolerance: float = 1e-4
    restore_best: bool = True
    seed: int = 0
    target_score: float | None = None

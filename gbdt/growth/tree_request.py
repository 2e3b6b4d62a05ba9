"""What a grower is asked for: one tree."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgbm.gbdt.growth.quantisation import Quantised
from dmlgbm.gbdt.kernels.layout import RecordArray


@dataclass(frozen=True)
class TreeRequest:
    """A tree of one output, from gradients that were made integers."""

    number: int  # over the whole model, all outputs counted
    output: int
    quantised: Quantised
    steps: RecordArray  # one STEP_RULES
    alone: bool = False  # whether one thread is to grow it, because the others grow trees of their own

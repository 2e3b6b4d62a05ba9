"""FedProx: federated averaging whose clients are drawn back to where they started, so that none runs away."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgbm.neural.context import RankContext
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.strategies.fedavg import FedAvg


@dataclass
class FedProx(FedAvg):
    """Adds `proximal` / 2 times the squared distance from the model of the group to the loss of each client."""

    name = "fedprox"
    proximal: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.proximal >= 0:
            raise ValueError(f"proximal must be at least 0, got {self.proximal}")

    def pull_back(self, context: RankContext, start: FloatArray) -> None:
        model = context.model
        model.gradients += model.gradients.dtype.type(self.proximal) * (model.parameters - start)

"""Errors of training that say what to do."""

from __future__ import annotations


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite; `step`, `epoch` and `layer` say where."""

    def __init__(self, loss: float, rank: int, epoch: int, step: int, layer: str) -> None:
        super().__init__(loss, rank, epoch, step, layer)
        self.loss, self.rank, self.epoch, self.step, self.layer = loss, rank, epoch, step, layer

    def __str__(self) -> str:
        return (
            f"the loss is {self.loss} on rank {self.rank} at step {self.step} (epoch {self.epoch}); the first values "
            f"that are not finite are those of {self.layer}: lower learning_rate, set clip_norm, or scale the columns"
        )

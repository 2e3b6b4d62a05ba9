"""The layers networks are made of, one kind a file."""

from __future__ import annotations

from dmlgbm.neural.layers.activation import ACTIVATIONS, Activation
from dmlgbm.neural.layers.base import Layer
from dmlgbm.neural.layers.batch_norm import BatchNorm
from dmlgbm.neural.layers.dense import Dense
from dmlgbm.neural.layers.dropout import Dropout
from dmlgbm.neural.layers.embedding import Embedding
from dmlgbm.neural.layers.residual import Residual

__all__ = ["ACTIVATIONS", "Activation", "BatchNorm", "Dense", "Dropout", "Embedding", "Layer", "Residual"]

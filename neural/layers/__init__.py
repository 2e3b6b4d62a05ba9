"""The layers networks are made of, one kind a file."""

from __future__ import annotations

from neural.layers.activation import ACTIVATIONS, Activation
from neural.layers.base import Layer
from neural.layers.batch_norm import BatchNorm
from neural.layers.dense import Dense
from neural.layers.dropout import Dropout
from neural.layers.embedding import Embedding
from neural.layers.residual import Residual

__all__ = ["ACTIVATIONS", "Activation", "BatchNorm", "Dense", "Dropout", "Embedding", "Layer", "Residual"]

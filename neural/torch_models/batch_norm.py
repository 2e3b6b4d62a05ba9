"""Batch normalisation of torch modules over the rows of a batch on all ranks: one small sum over ranks each way.

The layers stay those of the user; only what they compute in a training pass of all ranks together is replaced. That
holds for `SyncBatchNorm` too, which on a CPU would take the moments of each rank alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dmlgbm.neural.model import Pass, SumOverRanks


class NormsOverRanks:
    """The batch normalisations of one module, and the pass they are in."""

    def __init__(self, module: Any) -> None:
        self.pass_: Pass | None = None
        self.layers = [inner for inner in module.modules() if isinstance(inner, _BatchNorm)]
        for layer in self.layers:
            layer.forward = partial(self._forward, layer)
        self._keeps_local_moments = any(
            isinstance(inner, _InstanceNorm) and inner.track_running_stats for inner in module.modules()
        )

    def begin(self, pass_: Pass | None) -> None:
        """What follows belongs to a training pass, or to a prediction (None)."""
        if pass_ is not None and pass_.sum_over_ranks is not None and self._keeps_local_moments:
            raise ValueError(
                "running moments of instance normalisation would differ between ranks: set track_running_stats=False, "
                "or use n_ranks=1"
            )
        self.pass_ = pass_

    @property
    def meet(self) -> bool:
        """Whether ranks exchange something inside the present pass, so that all must run it, with rows or without."""
        return bool(self.layers) and self.pass_ is not None and self.pass_.sum_over_ranks is not None

    def _forward(self, layer: Any, values: Any) -> Any:
        layer._check_input_dim(values)
        if layer.training and self.meet:
            assert self.pass_ is not None
            assert self.pass_.sum_over_ranks is not None
            return _normalised(layer, values, self.pass_.step, self.pass_.sum_over_ranks)
        tracked = layer.running_mean is not None
        momentum = 0.0
        if layer.training and tracked and self.pass_ is not None:
            momentum = _momentum(layer, self.pass_.step)
        return batch_norm(
            values,
            layer.running_mean,
            layer.running_var,
            layer.weight,
            layer.bias,
            layer.training or not tracked,
            momentum,
            layer.eps,
        )


def _momentum(layer: Any, step: int) -> float:
    """How much of the running moments a step replaces; None asks for the mean of all steps."""
    return 1.0 / (step + 1) if layer.momentum is None else float(layer.momentum)


def _normalised(layer: Any, values: Any, step: int, sum_over_ranks: SumOverRanks) -> Any:
    with torch.no_grad():
        axes = [0, *range(2, values.dim())]
        exact = values.double()
        count = np.array([exact.numel() / exact.shape[1] if exact.numel() else 0.0])
        sums = sum_over_ranks(np.concatenate([exact.sum(axes).numpy(), exact.square().sum(axes).numpy(), count]))
        total = float(sums[-1])
        mean, square = torch.from_numpy(sums[:-1].reshape(2, -1) / total)
        variance = (square - mean * mean).clamp_(min=0.0)
        if layer.running_mean is not None:
            share = _momentum(layer, step)
            layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), share)
            fresh = variance * (total / max(total - 1.0, 1.0))
            layer.running_var.lerp_(fresh.to(layer.running_var.dtype), share)
    moments = _Moments(mean, (variance + layer.eps).rsqrt_(), total, sum_over_ranks)
    return _Normalise.apply(values, layer.weight, layer.bias, moments)


@dataclass(frozen=True)
class _Moments:
    mean: Any
    inverse: Any
    count: float
    sum_over_ranks: SumOverRanks


class _Normalise(torch.autograd.Function):
    """Values minus mean, divided by deviation; backward takes the share that the moments have in it."""

    @staticmethod
    def forward(ctx: Any, values: Any, weight: Any, bias: Any, moments: _Moments) -> Any:
        shape = [1, -1] + [1] * (values.dim() - 2)
        mean, inverse = (each.to(values.dtype).view(shape) for each in (moments.mean, moments.inverse))
        normal = (values - mean) * inverse
        ctx.save_for_backward(normal, inverse, weight)
        ctx.moments = moments
        return normal if weight is None else torch.addcmul(bias.view(shape), normal, weight.view(shape))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        normal, inverse, weight = ctx.saved_tensors
        axes = [0, *range(2, gradient.dim())]
        local = torch.stack([gradient.double().sum(axes), (gradient * normal).double().sum(axes)])
        means = torch.from_numpy(ctx.moments.sum_over_ranks(local.numpy()) / ctx.moments.count).to(gradient.dtype)
        slope = (gradient - means[0].view_as(inverse) - normal * means[1].view_as(inverse)) * inverse
        if weight is None:
            return slope, None, None, None
        local = local.to(weight.dtype)
        return slope * weight.view_as(inverse), local[1], local[0], None

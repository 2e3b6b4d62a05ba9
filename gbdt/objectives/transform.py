"""From raw scores to what a user wants to know: probabilities, rates or the scores themselves."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dmlgbm.gbdt.kernels.gradients import (
    write_exponential,
    write_shares_of_sigmoids,
    write_sigmoid,
    write_softmax,
)
from dmlgbm.gbdt.objectives.protocol import FloatArray

LinkFunction = Literal["none", "exponential", "sigmoid", "softmax", "one_vs_all"]

_LINKS: dict[str, LinkFunction] = {
    **dict.fromkeys(("binary", "focal", "cross_entropy"), "sigmoid"),
    **dict.fromkeys(("poisson", "gamma", "tweedie", "cox", "aft"), "exponential"),
    "multiclass": "softmax",
    "multiclassova": "one_vs_all",
}


def link_of(name: str) -> LinkFunction:
    """What turns scores of the objective of that name into predictions; "none" where they are predictions already."""
    return _LINKS.get(name, "none")


def transform(name: str, raw: FloatArray) -> FloatArray:
    """Predictions [output, row] for the raw scores [output, row] of the objective of that name.

    They are the probability of class 1 or of each class, a share, a mean, a relative hazard or a time, and
    without a link function `raw` itself.
    """
    link = link_of(name)
    if link == "none":
        return raw
    score = np.ascontiguousarray(raw)
    prediction = np.empty_like(score)
    if link == "sigmoid":
        write_sigmoid(score[0], prediction[0])
    elif link == "exponential":
        write_exponential(score[0], prediction[0])
    elif link == "softmax":
        write_softmax(score, prediction)
    else:
        write_shares_of_sigmoids(score, prediction)
    return prediction

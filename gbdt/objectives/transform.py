"""From raw scores to what a user wants to know: probabilities, rates or the scores themselves."""

from __future__ import annotations

import numpy as np

from dmlgbm.gbdt.kernels.gradients import write_exponential, write_sigmoid, write_softmax
from dmlgbm.gbdt.objectives.protocol import FloatArray

# Objectives whose scores are logarithms.
EXPONENTIAL = ("poisson", "cox", "aft")


def transform(name: str, raw: FloatArray) -> FloatArray:
    """Predictions [output, row] for the raw scores [output, row] of the objective of that name.

    "binary" gives the probability of class 1, "multiclass" those of all classes, "poisson" the mean, "cox" the
    hazard relative to other rows, "aft" the time; the scores of all others are predictions already and are returned as
    they are.
    """
    if name not in ("binary", "multiclass", *EXPONENTIAL):
        return raw
    score = np.ascontiguousarray(raw)
    prediction = np.empty_like(score)
    if name == "binary":
        write_sigmoid(score[0], prediction[0])
    elif name == "multiclass":
        write_softmax(score, prediction)
    else:
        write_exponential(score[0], prediction[0])
    return prediction

"""Which columns of few values share a byte as digits do, and the records by which kernels take them apart.

    byte      month + 12 * day           12 * 7 = 84 values
    parts     month: stride 1, 12 values       day: stride 12, 7 values

Rows are summed by byte, with one add instead of one for each column, and the sums of a byte's values are then spread
onto its columns, once for many rows. In a histogram every column has its own bins, as if it had a byte to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmlgbm.gbdt.kernels.layout import NARROW, PART, RecordArray

_BYTE_VALUES = 256


class JointColumns(NamedTuple):
    """The joint bytes of a plan."""

    sum_positions: npt.NDArray[np.uint32]  # [narrow column]: its position, behind all positions if it is a joint byte
    parts: RecordArray  # PART, one joint byte after the other, the largest stride first in each
    digits: npt.NDArray[np.uint8]  # [part, byte]: the part's value
    end: int  # of all these positions


def choose_joints(n_values: Sequence[int]) -> list[list[int]]:
    """Put columns, known by how many values they have, into as few bytes as a greedy choice finds.

    The largest comes first, into the fullest byte that has room for it. In each byte the smallest column is listed
    first, to get the largest stride: sums are then folded in few long steps.
    """
    joints: list[list[int]] = []
    products: list[int] = []
    with_product: dict[int, list[int]] = {}
    for column in sorted(range(len(n_values)), key=lambda k: (-n_values[k], k)):
        room = _BYTE_VALUES // n_values[column]
        product = max((product for product, found in with_product.items() if found and product <= room), default=0)
        if product:
            joint = with_product[product].pop()
            joints[joint].append(column)
            products[joint] *= n_values[column]
        else:
            joint = len(joints)
            joints.append([column])
            products.append(n_values[column])
        with_product.setdefault(products[joint], []).append(joint)
    return [joint[::-1] for joint in joints]


def describe_joints(layout: RecordArray, n_columns: int, positions: Sequence[int], n_positions: int) -> JointColumns:
    """The records of the joint bytes among so many one-byte columns, as the layout of their features has them."""
    own = np.flatnonzero((layout["storage"] == NARROW) & (layout["values"] > 0))
    found = {
        (int(record["column"]), -int(record["stride"])): (
            int(record["position"] - record["first_value"]),
            int(record["values"]),
        )
        for record in layout[own]
    }
    parts = np.zeros(len(found), PART)
    sum_positions = np.array(positions[:n_columns], np.uint32)
    digits = np.zeros((len(found), _BYTE_VALUES), np.uint8)
    first_sum, next_sum, before = n_positions, n_positions, -1
    for k, ((column, negative_stride), (position, values)) in enumerate(sorted(found.items())):
        stride = -negative_stride
        if column != before:
            first_sum, next_sum, before = next_sum, next_sum + stride * values, column
            sum_positions[column] = first_sum
        parts[k] = (column, position, values, stride, first_sum)
        digits[k] = np.arange(_BYTE_VALUES) // stride % values
    return JointColumns(sum_positions, parts, digits, next_sum)

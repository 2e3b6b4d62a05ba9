"""Encoded histograms come out as they went in, in no more bytes than their largest sums need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.gbdt.data.row_numbers import whole_table
from dmlgbm.gbdt.growth.quantisation import quantise
from dmlgbm.gbdt.kernels.histogram_codec import (
    FEATURE_HEADER_BYTES,
    MOST_BYTES_PER_BIN,
    SLACK,
    add_encoded_feature,
    encode_feature,
)
from dmlgbm.gbdt.threads import Workers

N_BINS = 40


def packing_of(precision: str, with_hessians: bool) -> Any:
    """How words are packed at a level: gradients of one size fit the coarse one."""
    ones = np.ones(100, np.float32)
    hessians = ones if with_hessians else ones[:0]
    with Workers(1) as workers:
        options: dict[str, Any] = {"segments": whole_table(100), "seed": 0, "tree": 0, "workers": workers}
        return quantise(ones, hessians, precision=precision, **options).packing  # type: ignore[arg-type]


def round_trip(planes: np.ndarray, packed: bool, packing: Any) -> tuple[np.ndarray, int]:
    """What comes out added to a histogram of ones, and the bytes it took."""
    buffer = np.full(FEATURE_HEADER_BYTES + MOST_BYTES_PER_BIN * N_BINS + SLACK + 5, 0xAA, np.uint8)
    end = encode_feature(packing, planes, packed, 0, N_BINS, buffer, 5)
    made = np.ones_like(planes)
    assert add_encoded_feature(packing, made, packed, 0, N_BINS, buffer, 5) == end
    return made, end - 5


@given(
    gradient_bits=st.integers(0, 61),
    hessian_bits=st.integers(0, 61),
    count_bits=st.integers(0, 40),
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_any_sums_survive(gradient_bits: int, hessian_bits: int, count_bits: int, seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    planes = np.zeros((3, N_BINS), np.int64)
    planes[0] = random.integers(-(1 << gradient_bits), (1 << gradient_bits) + 1, N_BINS)
    planes[1] = random.integers(0, 1 << hessian_bits, N_BINS, endpoint=True)
    planes[2] = random.integers(1, 1 << count_bits, N_BINS, endpoint=True)
    planes[:, random.random(N_BINS) >= share] = 0
    made, n_bytes = round_trip(planes, False, packing_of("exact", True))
    np.testing.assert_array_equal(made, planes + 1)
    largest = [int(np.abs(plane).max()).bit_length() for plane in planes]
    # One sign bit, and each sum of more than 64 bits in all begins a byte of its own.
    most_bytes = -(-(sum(largest) + 2) // 8) + 2
    assert n_bytes <= FEATURE_HEADER_BYTES + N_BINS * most_bytes


@pytest.mark.parametrize("with_hessians", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_packed_and_wide_sums_survive(packed: bool, with_hessians: bool) -> None:
    packing = packing_of("auto", with_hessians)
    random = np.random.default_rng(0)
    gradients = random.integers(-5_000, 5_000, N_BINS)
    counts = random.integers(0, 100, N_BINS)
    gradients[counts == 0] = 0
    hessians = 3 * counts if with_hessians else counts
    planes = np.stack((gradients, hessians, counts)).astype(np.int64)
    if packed:
        one = packing[0]
        planes[0] = (gradients << one["gradient_shift"]) + hessians * one["hessian_factor"] + counts
    made, n_bytes = round_trip(planes, packed, packing)
    for plane in range(1 if packed else 3):
        np.testing.assert_array_equal(made[plane], planes[plane] + 1)
    assert n_bytes <= FEATURE_HEADER_BYTES + N_BINS * (4 if with_hessians else 3)


def test_a_feature_without_rows_is_its_header() -> None:
    made, n_bytes = round_trip(np.zeros((3, N_BINS), np.int64), False, packing_of("auto", True))
    assert n_bytes == FEATURE_HEADER_BYTES
    assert made.sum() == made.size

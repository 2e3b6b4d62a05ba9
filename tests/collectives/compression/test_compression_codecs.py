"""Each codec alone: what survives a round trip, how small it gets, what it makes of extreme values and bad bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmlgbm.collectives.compression import (
    CODECS,
    BFloat16,
    Codec,
    Float16,
    Float16Sum,
    GatheredCodec,
    Int8,
    Layout,
    NoCompression,
    OneBit,
    PayloadError,
    PowerSGD,
    RandomK,
    Round,
    SummedCodec,
    TopK,
)
from dmlgbm.collectives.compression.counter_random import one_of_each_stratum, random_signed_units
from dmlgbm.collectives.compression.low_rank import fixed_order_sum, orthonormal_columns
from dmlgbm.collectives.compression.sparse import largest_positions
from dmlgbm.gbdt.system.counter_random import hash_of

Array = npt.NDArray[Any]
DTYPES = [np.float32, np.float64]
ALL = [codec() for codec in CODECS.values()]
GATHERED = [codec for codec in ALL if isinstance(codec, GatheredCodec)]
EXTREMES = [0.0, -0.0, 1e-45, -1e-40, 1.1754944e-38, 1.0, -65504.0, 65520.0, 1e30, 3.4028235e38, -3.4028235e38]


def round_for(values: Array, step: int = 0, memory: Array | None = None) -> Round:
    return Round(Layout(values.shape, values.dtype), "key", step, world_size=1, memory=memory)


def sent_by(codec: Codec, values: Array, step: int = 0) -> Array:
    """What the other ranks get of `values`, with this rank alone in the world."""
    round_ = round_for(values, step)
    if isinstance(codec, GatheredCodec):
        body = np.frombuffer(codec.encode(values.reshape(-1), round_), np.uint8)
        assert body.size == codec.body_size(round_.layout)
        return codec.decode(body, round_).reshape(values.shape)
    assert isinstance(codec, SummedCodec)
    passes = codec.exchange(values.reshape(-1), round_)
    payload = next(passes)
    while True:
        try:
            payload = passes.send(payload.copy())
        except StopIteration as end:
            return end.value.total.reshape(values.shape)


@st.composite
def finite_arrays(draw: st.DrawFn, limit: float = 1e30) -> Array:
    width = draw(st.sampled_from([32, 64]))
    bound = float(np.float32(limit))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=12))
    elements = st.floats(-bound, bound, width=width) | st.sampled_from([0.0, 1.0, -1.0])
    return draw(hnp.arrays(np.float32 if width == 32 else np.float64, shape, elements=elements))


@pytest.mark.medium
@pytest.mark.parametrize("codec", ALL, ids=lambda codec: codec.name)
@given(values=finite_arrays(limit=1e18))
def test_what_is_sent_is_finite_of_same_dtype_and_no_larger_an_error_than_sending_nothing(
    codec: Codec, values: Array
) -> None:
    before = values.copy()
    sent = sent_by(codec, values)
    assert sent.dtype == values.dtype
    assert np.isfinite(sent).all()
    assert np.array_equal(values, before)
    exact = values.astype(np.float64) / max(float(np.abs(values).max()), 1e-300)
    lost = exact - sent.astype(np.float64) / max(float(np.abs(values).max()), 1e-300)
    assert np.linalg.norm(lost) <= np.linalg.norm(exact) * (1 + 1e-5)


@given(values=finite_arrays())
def test_no_compression_changes_nothing(values: Array) -> None:
    assert sent_by(NoCompression(), values).tobytes() == values.tobytes()


@pytest.mark.parametrize("codec", [Float16(), Float16Sum()], ids=lambda codec: codec.name)
@given(values=finite_arrays())
def test_float16_is_the_nearest_half_within_the_range(codec: Codec, values: Array) -> None:
    expected = np.clip(values, -65504, 65504).astype(np.float16).astype(values.dtype)
    assert sent_by(codec, values).tobytes() == expected.tobytes()


@given(values=finite_arrays())
def test_bfloat16_is_within_one_part_in_256(values: Array) -> None:
    sent = sent_by(BFloat16(), values)
    assert (np.abs(sent - values.astype(np.float64)) <= np.abs(values) * 2.0**-8 + 1e-40).all()


def test_bfloat16_rounds_to_nearest_even() -> None:
    step = 2.0**-7
    values = np.array([1, 1 + step / 2, 1 + step * 1.5, 1 + step * 0.51, -1 - step * 0.49], np.float32)
    assert sent_by(BFloat16(), values).tolist() == [1, 1, 1 + 2 * step, 1 + step, -1]


@given(values=finite_arrays(), block_size=st.integers(1, 40))
def test_int8_is_within_half_a_level_of_its_block(values: Array, block_size: int) -> None:
    flat = values.reshape(-1)
    sent = sent_by(Int8(block_size), values).reshape(-1)
    for start in range(0, flat.size, block_size):
        block = slice(start, start + block_size)
        level = np.abs(flat[block]).max().astype(np.float64) / 127
        # The level is sent in single precision: off by half its smallest step, and a value is up to 127 levels.
        rounding = 128 * np.finfo(np.float32).smallest_subnormal.astype(np.float64) / 2
        assert (np.abs(flat[block] - sent[block].astype(np.float64)) <= level * 0.5001 + rounding).all()


def test_one_bit_sends_the_mean_of_each_sign_in_each_block() -> None:
    values = np.array([1, 3, -2, -4, 0, 10, 20, -5], np.float32)
    expected = [4 / 3, 4 / 3, -3, -3, 4 / 3, 15, 15, -5]
    assert np.allclose(sent_by(OneBit(block_size=5), values), expected, rtol=1e-6)


@given(values=finite_arrays(), n_kept=st.integers(1, 2000))
def test_top_k_keeps_the_largest_and_the_first_among_equals(values: Array, n_kept: int) -> None:
    flat = values.reshape(-1)
    n_kept = min(n_kept, flat.size)
    naive = sorted(sorted(range(flat.size), key=lambda index: (-abs(flat[index]), index))[:n_kept])
    assert largest_positions(flat, n_kept).tolist() == naive


@given(count=st.integers(1, 500), fraction=st.floats(0.001, 1), step=st.integers(0, 5))
def test_random_k_sends_some_positions_unchanged_and_others_as_zero(count: int, fraction: float, step: int) -> None:
    values = np.arange(1, count + 1, dtype=np.float64)
    sent = sent_by(RandomK(fraction), values, step)
    assert set(sent[sent != 0]) <= set(values)
    assert np.count_nonzero(sent) == min(count, int(np.ceil(count * fraction)))
    assert np.array_equal(sent[sent != 0], values[sent != 0])


def test_random_choice_is_a_function_of_its_key_and_reaches_every_position() -> None:
    chosen = [one_of_each_stratum(hash_of("purpose", step), 103, 10) for step in range(300)]
    assert all(np.array_equal(np.unique(row), row) for row in chosen)
    counts = np.bincount(np.concatenate(chosen), minlength=103)
    assert counts.size == 103
    assert counts.min() > 0
    assert abs(random_signed_units(7, 10_000).mean()) < 0.05
    assert hash_of("a", 11) != hash_of("a1", 1)


@given(
    values=hnp.arrays(
        np.float32, (9, 3), elements=st.floats(-(2.0**50), 2.0**50, width=32) | st.sampled_from([0.0, 1.0])
    )
)
def test_orthonormal_columns_are_orthonormal_or_zero(values: Array) -> None:
    columns = orthonormal_columns(values).astype(np.float64)
    gram = columns.T @ columns
    lengths = np.diag(gram)
    assert np.allclose(gram, np.diag(np.rint(lengths)), atol=1e-5)
    assert set(np.rint(lengths)) <= {0.0, 1.0}


@given(values=hnp.arrays(np.float64, st.integers(1, 200), elements=st.floats(-1e6, 1e6)))
def test_fixed_order_sum_is_a_sum(values: Array) -> None:
    assert fixed_order_sum(values) == pytest.approx(values.sum(), abs=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_power_sgd_finds_a_matrix_of_its_rank(scale: float) -> None:
    random = np.random.default_rng(3)
    matrix = (random.normal(size=(20, 2)) @ random.normal(size=(2, 30)) * scale).astype(np.float32)
    assert np.allclose(
        sent_by(PowerSGD(rank=2), matrix.reshape(20, 5, 6)).reshape(20, 30) / scale, matrix / scale, atol=1e-4
    )


def test_power_sgd_sends_vectors_and_small_matrices_whole() -> None:
    for shape in [(), (7,), (3, 4)]:
        values = np.random.default_rng(1).normal(size=shape)
        assert np.array_equal(sent_by(PowerSGD(), values), values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec", [codec for codec in ALL if codec.name != "power_sgd"], ids=lambda codec: codec.name)
def test_largest_and_smallest_floats_are_encoded(codec: Codec, dtype: type) -> None:
    limits = np.finfo(dtype)
    values = np.array([*EXTREMES, limits.max, limits.min, limits.smallest_subnormal], dtype)
    with np.errstate(all="raise", under="ignore"):
        sent = sent_by(codec, values)
        alone = sent_by(codec, np.full(5, limits.max, dtype))
        tiny = sent_by(codec, np.full(5, limits.smallest_subnormal, dtype))
    assert np.isfinite(sent).all()
    assert (alone >= 0).all()
    assert (alone <= limits.max).all()
    assert (tiny <= 127 * limits.smallest_subnormal).all()


@pytest.mark.parametrize(
    ("codec", "ratio"),
    [
        (Float16(), 2),
        (BFloat16(), 2),
        (Int8(), 3.98),
        (OneBit(), 31),
        (TopK(0.01), 50),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_bytes_of_float32_shrink_by(codec: GatheredCodec, ratio: float) -> None:
    layout = Layout((1000, 1000), np.dtype(np.float32))
    assert 4 * layout.count / codec.body_size(layout) == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize("codec", GATHERED, ids=lambda codec: codec.name)
@given(data=st.data(), count=st.integers(1, 70), dtype=st.sampled_from(DTYPES))
def test_random_bytes_are_refused_or_give_finite_values(
    codec: GatheredCodec, data: st.DataObject, count: int, dtype: type
) -> None:
    round_ = round_for(np.zeros(count, dtype))
    size = codec.body_size(round_.layout)
    body = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    try:
        values = codec.decode(body, round_)
    except PayloadError:
        return
    assert values.shape == (count,)
    assert values.dtype == dtype
    assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("codec", "body", "message"),
    [
        (Float16(), np.array([1, np.inf], "<f2"), "not finite"),
        (BFloat16(), np.array([0x3F80, 0x7FC0], "<u2"), "not finite"),
        (Int8(), np.array([1, 0, 0, 0, 5, 128], "u1"), "below -127"),
        (Int8(), np.frombuffer(np.float32(-1).tobytes() + b"\1\1", "u1"), "negative or too large"),
        (Int8(), np.frombuffer(np.float32(3e38).tobytes() + b"\1\1", "u1"), "negative or too large"),
        (OneBit(), np.frombuffer(np.array([1, np.nan], "<f4").tobytes() + b"\0", "u1"), "negative or too large"),
        (OneBit(), np.frombuffer(np.array([1, 1], "<f4").tobytes() + b"\x20", "u1"), "after the last value"),
        (TopK(), np.array([2, 0], "<u4"), "ascend and stay below 2"),
        (TopK(1.0), np.array([1, 0, 0, 0], "<u4"), "ascend"),
        (TopK(1.0), np.array([1, 1, 0, 0], "<u4"), "ascend"),
        (TopK(1.0), np.array([0, 1, 0, 0x7FC00000], "<u4"), "not finite"),
    ],
)
def test_bad_payload_is_named(codec: GatheredCodec, body: Array, message: str) -> None:
    round_ = round_for(np.zeros(2, np.float32))
    assert body.view(np.uint8).size == codec.body_size(round_.layout)
    with pytest.raises(PayloadError, match=message):
        codec.decode(body.view(np.uint8), round_)


@pytest.mark.parametrize(
    ("codec", "settings", "message"),
    [
        (Int8, {"block_size": 0}, "block_size"),
        (OneBit, {"block_size": 1.5}, "block_size"),
        (TopK, {"fraction": 0}, "fraction"),
        (TopK, {"fraction": float("nan")}, "fraction"),
        (RandomK, {"fraction": 1.1}, "fraction"),
        (PowerSGD, {"rank": 0}, "rank"),
    ],
)
def test_bad_setting_is_named(codec: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        codec(**settings)

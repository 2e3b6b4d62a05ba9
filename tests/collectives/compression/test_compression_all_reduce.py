"""The compressed sum over ranks: same bits everywhere, nothing lost for good, errors that reach every rank."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgbm.collectives.compression import (
    CODECS,
    BFloat16,
    Codec,
    Compressor,
    Float16,
    Float16Sum,
    GatheredCodec,
    Int8,
    NoCompression,
    OneBit,
    PayloadError,
    PeerRefusedError,
    PowerSGD,
    RandomK,
    TopK,
    compressed_all_reduce,
)
from tests.reference.threaded_ranks import ThreadedRank, run_on_ranks

Array = npt.NDArray[Any]
ALL: list[Codec] = [
    NoCompression(),
    Float16(),
    Float16Sum(),
    BFloat16(),
    Int8(block_size=16),
    OneBit(block_size=16),
    TopK(0.1),
    RandomK(0.1),
    PowerSGD(rank=1),
]
EVERY_CODEC = pytest.mark.parametrize("codec", ALL, ids=lambda codec: codec.name)
SHAPES = [(), (0,), (3, 0), (1,), (17,), (13, 11), (8, 3, 5)]


def gradients(rank: int, step: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    random = np.random.default_rng([rank, step])
    return np.asarray(random.normal(size=shape) * 10.0 ** random.integers(-3, 3, size=shape)).astype(dtype)


def sums_on(
    world_size: int, codec: Codec, arrays: Callable[[int, int], Array], n_steps: int
) -> list[tuple[list[Array], Compressor]]:
    """For each rank the sums it got, step by step, and its compressor afterwards."""

    def work(rank: ThreadedRank) -> tuple[list[Array], Compressor]:
        compressor = Compressor(codec)
        sums = [compressed_all_reduce(rank, arrays(rank.rank, step), compressor, "w") for step in range(n_steps)]
        return sums, compressor

    outcomes = run_on_ranks(world_size, work)
    assert [outcome for outcome in outcomes if isinstance(outcome, Exception)] == []
    return outcomes


def test_every_codec_is_tested() -> None:
    assert [codec.name for codec in ALL] == list(CODECS)


@EVERY_CODEC
@settings(max_examples=25)
@given(
    world_size=st.integers(1, 5),
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_every_rank_gets_the_same_bits_in_a_new_writable_array(
    codec: Codec, world_size: int, shape: tuple[int, ...], dtype: Any
) -> None:
    outcomes = sums_on(world_size, codec, lambda rank, step: gradients(rank, step, shape, dtype), n_steps=3)
    for step in range(3):
        results = [sums[step] for sums, _ in outcomes]
        assert {result.tobytes() for result in results} == {results[0].tobytes()}
        assert {(result.shape, result.dtype) for result in results} == {(shape, np.dtype(dtype))}
        assert all(result.flags.writeable for result in results)


@EVERY_CODEC
def test_what_was_sent_and_what_is_left_add_up_to_the_input(codec: Codec) -> None:
    n_steps, shape = 40, (12, 9)
    outcomes = sums_on(3, codec, lambda rank, step: gradients(rank, step, shape, np.float64), n_steps)
    given_in = sum(gradients(rank, step, shape, np.float64) for rank in range(3) for step in range(n_steps))
    sent = sum(outcomes[0][0])
    left = sum(compressor.residual("w") for _, compressor in outcomes)
    # Half-precision sums round on the way, by at most 2**-10 of what they add up to at each of the two additions.
    size = sum(np.abs(gradients(rank, step, shape, np.float64)) for rank in range(3) for step in range(n_steps))
    tolerance = 2.0**-9 * size.max() if codec.name == "fp16_sum" else 1e-9 * size.max()
    assert np.abs(sent + left - given_in).max() <= tolerance


@pytest.mark.medium
@EVERY_CODEC
def test_mean_of_sums_approaches_the_sum_of_a_constant_input(codec: Codec) -> None:
    shape = (12, 9)
    target = sum(gradients(rank, 0, shape) for rank in range(3)).astype(np.float64)
    outcomes = sums_on(3, codec, lambda rank, step: gradients(rank, 0, shape), n_steps=400)

    def distance(n_steps: int) -> float:
        return float(np.linalg.norm(np.mean(outcomes[0][0][:n_steps], axis=0, dtype=np.float64) - target))

    size = float(np.linalg.norm(target))
    assert distance(400) <= max(0.3 * distance(40), 1e-3 * size)
    assert distance(400) <= 0.1 * size


def test_values_beyond_the_range_of_half_precision_arrive_later() -> None:
    for codec in (Float16(), Float16Sum()):
        first = np.array([200_000.0, -1e-9], np.float32)
        arrays = [first] + [np.zeros(2, np.float32)] * 9
        outcomes = sums_on(2, codec, lambda rank, step, arrays=arrays: arrays[step], n_steps=10)
        assert sum(outcomes[0][0])[0] == 400_000.0
        assert outcomes[1][1].residual("w").tolist() == [0.0, np.float32(-1e-9)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 7, 9])
def test_half_precision_sums_of_clipped_values_stay_in_range(world_size: int) -> None:
    huge = np.array([3e38, -3e38], np.float32)
    outcomes = sums_on(world_size, Float16Sum(), lambda rank, step: huge, n_steps=1)
    assert 65000 < outcomes[0][0][0][0] <= 65504


@EVERY_CODEC
def test_bytes_on_the_wire_are_those_of_the_payload_and_a_few_more(codec: Codec) -> None:
    shape, world_size = (100, 80), 3
    expected = {
        "none": 32_000,
        "fp16": 16_000,
        "fp16_sum": 16_000,
        "bf16": 16_000,
        "int8": 8_000 + 500 * 4,
        "one_bit": 1_000 + 500 * 8,
        "top_k": 800 * 8,
        "random_k": 800 * 4,
        "power_sgd": 180 * 4,
    }[codec.name]

    def work(rank: ThreadedRank) -> int:
        compressed_all_reduce(rank, gradients(rank.rank, 0, shape), Compressor(codec), "w")
        return rank.bytes_sent

    for n_bytes in run_on_ranks(world_size, work):
        assert expected < n_bytes <= expected + 2 * (2 * world_size * 4)


@EVERY_CODEC
def test_saved_state_goes_on_as_if_nothing_had_happened(codec: Codec) -> None:
    shape = (12, 9)

    def work(rank: ThreadedRank) -> bool:
        def run(compressor: Compressor, steps: range) -> list[bytes]:
            arrays = [gradients(rank.rank, step, shape) for step in steps]
            return [compressed_all_reduce(rank, array, compressor, "läyer/0:w").tobytes() for array in arrays]

        first = Compressor(codec)
        run(first, range(5))
        file = io.BytesIO()
        np.savez(file, **first.save())
        uninterrupted = run(first, range(5, 10))
        second = Compressor(codec)
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            second.restore(arrays)
        assert second.keys() == ["läyer/0:w"]
        assert second.step("läyer/0:w") == 5
        return run(second, range(5, 10)) == uninterrupted

    assert run_on_ranks(3, work) == [True] * 3


@EVERY_CODEC
def test_state_of_an_empty_array_is_saved_and_restored(codec: Codec) -> None:
    def work(rank: ThreadedRank) -> Array:
        first, second = Compressor(codec), Compressor(codec)
        compressed_all_reduce(rank, np.zeros((4, 0)), first, "w")
        second.restore(first.save())
        return compressed_all_reduce(rank, np.zeros((4, 0)), second, "w")

    assert [result.shape for result in run_on_ranks(2, work)] == [(4, 0)] * 2


@EVERY_CODEC
def test_reset_forgets_one_key_or_all(codec: Codec) -> None:
    def work(rank: ThreadedRank) -> list[bytes]:
        compressor = Compressor(codec)
        results = []
        for reset in (None, "one", "all"):
            if reset == "one":
                compressor.reset("w")
            elif reset == "all":
                compressor.reset()
                assert compressor.keys() == []
            results.append(compressed_all_reduce(rank, gradients(rank.rank, 0, (12, 9)), compressor, "w").tobytes())
            compressed_all_reduce(rank, gradients(rank.rank, 1, (5,)), compressor, "other")
        return results

    for results in run_on_ranks(2, work):
        assert len(set(results)) == 1


def refused_on_rank_1(codec: Codec, bad: Any, key: Any = "w", world_size: int = 3) -> list[Any]:
    """What each rank says when rank 1 alone calls with bad input, and that the next call works on all of them."""

    def work(rank: ThreadedRank) -> Exception:
        compressor = Compressor(codec)
        compressed_all_reduce(rank, gradients(rank.rank, 0, (4, 25)), compressor, "w")
        before = {name: array.tobytes() for name, array in compressor.save().items()}
        array, called = (bad, key) if rank.rank == 1 else (gradients(rank.rank, 1, (4, 25)), "w")
        with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
            compressed_all_reduce(rank, array, compressor, called)
        assert {name: array.tobytes() for name, array in compressor.save().items()} == before
        compressed_all_reduce(rank, gradients(rank.rank, 2, (4, 25)), compressor, "w")
        return caught.value

    outcomes = run_on_ranks(world_size, work)
    assert all(isinstance(outcome, Exception) for outcome in outcomes)
    return outcomes


def with_value(value: float) -> Array:
    array = gradients(1, 1, (4, 25))
    array[2, 7] = value
    return array


@EVERY_CODEC
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (with_value(np.nan), ValueError, r"array\[2, 7\] of key 'w' is nan; .*nan_policy='zero'"),
        (with_value(-np.inf), ValueError, r"array\[2, 7\] of key 'w' is -inf"),
        (np.zeros((4, 25), np.int64), TypeError, "float32 or float64 in native byte order, not <i8"),
        (np.zeros((4, 25), ">f4"), TypeError, "native byte order, not >f4"),
        (np.zeros((5, 25), np.float32), ValueError, r"shape \(5, 25\).*state of key 'w' has \(4, 25\)"),
        (np.zeros((4, 25), np.float64), ValueError, r"float64, but the state of key 'w' has .* float32"),
        ([1.0, 2.0], TypeError, "numpy array, not list"),
    ],
    ids=["nan", "infinity", "integers", "byte order", "shape", "dtype", "list"],
)
def test_bad_input_on_one_rank_raises_there_and_is_named_on_the_others(
    codec: Codec, bad: Any, error: type[Exception], message: str
) -> None:
    first, second, third = refused_on_rank_1(codec, bad)
    assert isinstance(second, error)
    with pytest.raises(error, match=message):
        raise second
    for other in (first, third):
        assert isinstance(other, PeerRefusedError)
        assert "key 'w', step 1" in str(other)
        assert "ranks [1] refused" in str(other)


@EVERY_CODEC
def test_another_key_on_one_rank_is_noticed_by_all(codec: Codec) -> None:
    outcomes = refused_on_rank_1(codec, gradients(1, 1, (4, 25)), key="v")
    assert all(isinstance(outcome, PayloadError) for outcome in outcomes)
    assert "ranks [1] work on something else" in str(outcomes[0])
    assert "ranks [0, 2] work on something else" in str(outcomes[1])


def test_states_of_different_steps_do_not_mix() -> None:
    def work(rank: ThreadedRank) -> None:
        compressor = Compressor(RandomK(0.1))
        compressed_all_reduce(rank, np.ones(50), compressor, "w")
        if rank.rank == 0:
            compressor.reset("w")
        compressed_all_reduce(rank, np.ones(50), compressor, "w")

    for outcome in run_on_ranks(3, work):
        assert isinstance(outcome, PayloadError)
        assert "saved at the same step" in str(outcome)


@pytest.mark.parametrize(("key", "error"), [(3, TypeError), ("", ValueError), ("a\0b", ValueError)])
def test_bad_state_key_is_named(key: Any, error: type[Exception]) -> None:
    (outcome,) = run_on_ranks(1, lambda rank: compressed_all_reduce(rank, np.ones(3), Compressor(Int8()), key))
    assert isinstance(outcome, error)
    assert "state_key" in str(outcome)


@EVERY_CODEC
def test_policy_zero_takes_values_that_are_not_finite_as_zero(codec: Codec) -> None:
    bad = gradients(0, 0, (12, 9))
    bad[3, :3] = [np.nan, np.inf, -np.inf]
    clean = np.where(np.isfinite(bad), bad, np.float32(0))

    def work(rank: ThreadedRank) -> tuple[bytes, bytes]:
        lenient, strict = Compressor(codec, nan_policy="zero"), Compressor(codec)
        got = compressed_all_reduce(rank, bad, lenient, "w")
        return got.tobytes(), compressed_all_reduce(rank, clean, strict, "w").tobytes()

    for got, expected in run_on_ranks(2, work):
        assert got == expected


@EVERY_CODEC
def test_sum_that_overflows_raises_on_every_rank(codec: Codec) -> None:
    huge = np.full((12, 9), 3e38, np.float32)

    def work(rank: ThreadedRank) -> Array:
        return compressed_all_reduce(rank, huge, Compressor(codec), "w")

    for outcome in run_on_ranks(3, work):
        if codec.name.startswith("fp16"):
            assert outcome.max() <= 3 * 65504
        else:
            assert isinstance(outcome, OverflowError)
            assert "overflows" in str(outcome)


def test_array_that_overflows_with_what_is_unsent_is_named() -> None:
    def work(rank: ThreadedRank) -> None:
        compressor = Compressor(Float16())
        for _ in range(2):
            compressed_all_reduce(rank, np.array([0, 3e38], np.float32), compressor, "w")

    for outcome in run_on_ranks(2, work):
        assert isinstance(outcome, OverflowError)
        assert "array[1] plus what is still unsent of key 'w' overflows float32" in str(outcome)


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda frame: frame[:-1], "rank 0 sent 31 bytes where 32 are due"),
        (lambda frame: np.append(frame, np.uint8(0)), "rank 0 sent 33 bytes where 32 are due"),
        (lambda frame: frame[:5], "a frame is at least 8 bytes"),
        (lambda frame: frame.view(np.uint16), "a frame is at least 8 bytes"),
        (lambda frame: np.concatenate([frame[:8], np.full(32, 255, np.uint8)]), "rank 0 sent a bad payload: .*finite"),
        (lambda frame: np.concatenate([~frame[:8], frame[8:]]), r"ranks \[.*\] work on something else"),
    ],
)
def test_bad_frame_from_a_peer_raises_on_every_rank(tamper: Callable[[Array], Array], message: str) -> None:
    def work(rank: ThreadedRank) -> None:
        rank.tamper = tamper if rank.rank == 0 else None
        compressor = Compressor(Float16())
        try:
            compressed_all_reduce(rank, np.ones(16), compressor, "w")
        finally:
            assert compressor.keys() == []

    for outcome in run_on_ranks(3, work):
        with pytest.raises(PayloadError, match=message):
            raise outcome


@pytest.mark.parametrize("codec", [codec for codec in ALL if isinstance(codec, GatheredCodec)], ids=lambda c: c.name)
@settings(max_examples=30)
@given(position=st.integers(0, 10_000), mask=st.integers(1, 255))
def test_one_changed_byte_gives_the_same_outcome_on_every_rank(codec: Codec, position: int, mask: int) -> None:
    def change(frame: Array) -> Array:
        frame[position % frame.size] ^= np.uint8(mask)
        return frame

    def work(rank: ThreadedRank) -> bytes:
        rank.tamper = change if rank.rank == 0 else None
        return compressed_all_reduce(rank, gradients(rank.rank, 0, (30,)), Compressor(codec), "w").tobytes()

    outcomes = run_on_ranks(3, work)
    kinds = {type(outcome) for outcome in outcomes}
    assert len(kinds) == 1
    assert kinds <= {bytes, PayloadError, PeerRefusedError, OverflowError}
    if kinds == {bytes}:
        assert len(set(outcomes)) == 1


def test_failing_communicator_does_not_hide_the_reason_for_a_refusal() -> None:
    class Broken(ThreadedRank):
        def all_gather(self, array: Array) -> list[Array]:
            raise ConnectionError("gone")

    def work(rank: ThreadedRank) -> None:
        broken = Broken(0, [np.empty(0)], rank._barrier)
        compressed_all_reduce(broken, np.array([np.nan]), Compressor(Int8()), "w")

    (outcome,) = run_on_ranks(1, work)
    assert isinstance(outcome, ValueError)
    assert isinstance(outcome.__cause__, ConnectionError)
    assert "array[0]" in str(outcome)


def saved_power_sgd() -> dict[str, Any]:
    def work(rank: ThreadedRank) -> dict[str, Any]:
        compressor = Compressor(PowerSGD(rank=1))
        compressed_all_reduce(rank, gradients(0, 0, (12, 9)), compressor, "w")
        return compressor.save()

    return run_on_ranks(1, work)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": np.array("other")}, "format is 'other'"),
        ({"codec": np.array("Int8()")}, "written for Int8"),
        ({"keys": np.array(["w", "w"])}, "keys must be distinct"),
        ({"keys": None}, "keys is missing"),
        ({"steps": np.array([0])}, r"steps\[0\]"),
        ({"steps": np.array([1.5])}, r"steps\[0\]"),
        ({"dtypes": np.array(["object"])}, r"dtypes\[0\]"),
        ({"shape_0": np.array([-12, -9])}, "shape_0"),
        ({"shape_0": np.array([10**9, 10**9])}, "residual_0 must be float32 of shape"),
        ({"residual_0": np.full(108, np.nan, np.float32)}, "residual_0 holds NaN"),
        ({"memory_0": np.zeros((8, 1), np.float32)}, r"memory_0 must be float32 of shape \(9, 1\)"),
        ({"memory_0": None}, "memory_0 is missing"),
    ],
)
def test_saved_state_that_does_not_fit_is_refused_and_changes_nothing(change: dict[str, Any], message: str) -> None:
    arrays = {name: array for name, array in (saved_power_sgd() | change).items() if array is not None}
    compressor = Compressor(PowerSGD(rank=1))
    with pytest.raises(ValueError, match=message):
        compressor.restore(arrays)
    assert compressor.keys() == []


def test_bad_arguments_of_a_compressor_are_named() -> None:
    with pytest.raises(TypeError, match="codec must be an instance"):
        Compressor("int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nan_policy must be one of"):
        Compressor(Int8(), nan_policy="ignore")  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="no state for key 'w'"):
        Compressor(Int8()).reset("w")

"""Shares stay where they lie, until one worker would have far more than its part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dmlgbm.dask_backend.placement import place_shares


def test_balanced_shares_stay_where_they_are() -> None:
    assert place_shares([10, 10, 10, 10], ["a", "b", "b", "a"], {"a": 1, "b": 1}) == ["a", "b", "b", "a"]


def test_shares_leave_a_worker_that_has_everything() -> None:
    placed = place_shares([10] * 8, ["a"] * 8, {"a": 1, "b": 1})
    assert placed.count("a") == placed.count("b") == 4


def test_threads_count_as_capacity() -> None:
    placed = place_shares([10] * 8, [None] * 8, {"a": 3, "b": 1})
    assert placed.count("a") == 6


def test_rows_from_before_count() -> None:
    assert place_shares([10, 10], [None, None], {"a": 1, "b": 1}, {"a": 100}) == ["b", "b"]


def test_a_holder_that_is_gone_is_replaced() -> None:
    assert place_shares([10, 10], ["gone", "a"], {"a": 1, "b": 1}) == ["b", "a"]


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.sampled_from(["a", "b", "c", None, "gone"])), min_size=1),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 8), min_size=1),
)
def test_every_share_gets_a_worker_that_exists(shares: list[tuple[int, str | None]], threads: dict[str, int]) -> None:
    n_rows = [rows for rows, _ in shares]
    placed = place_shares(n_rows, [holder for _, holder in shares], threads)
    assert len(placed) == len(shares)
    assert set(placed) <= set(threads)
    # No worker has more than its part and the largest share.
    fair = sum(n_rows) / sum(threads.values())
    for worker in threads:
        load = sum(rows for rows, owner in zip(n_rows, placed, strict=True) if owner == worker)
        assert load <= 1.15 * fair * threads[worker] + max(n_rows)

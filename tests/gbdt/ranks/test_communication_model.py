"""The communication model bounds what ranks count, closely, and its all_reduce is that of the schedules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_communication import FEATURES, RANKS, SECTION, check, model_table
from benchmarks.communication import MODES, CommunicationModel, Mode, rounds_of
from benchmarks.marked_section import replace_section
from dmlgbm.collectives import all_reduce_bytes
from dmlgbm.collectives.frames import Operation
from dmlgbm.collectives.kernels.layout import ACTION, COUNT, SEND
from dmlgbm.collectives.schedules.choice import Shape, choose, make_program

# The model over what was counted. Bins of real trees are less equal than the model's, and ranks elect fewer features
# than they may where their votes agree.
LOWEST, HIGHEST = 0.95, 1.4
PAGE = Path(__file__).resolve().parents[3] / "docs" / "parallel_modes.md"


@pytest.mark.medium
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_ranks", "n_leaves"), [(20_000, 10, 2, 31), (12_000, 40, 4, 63), (6_000, 300, 3, 15)]
)
def test_model_bounds_what_ranks_count(mode: Mode, n_rows: int, n_features: int, n_ranks: int, n_leaves: int) -> None:
    found = check(n_rows, n_features, n_ranks, n_leaves, mode)
    assert LOWEST <= found.ratio <= HIGHEST
    assert abs(found.rounds - found.model_rounds) <= 1.0


@pytest.mark.parametrize("n_ranks", [2, 3, 5, 16, 24, 64])
@pytest.mark.parametrize("n_words", [1, 3, 2_048, 2_049, 40_000, 1 << 18])
def test_bytes_of_an_all_reduce_are_those_of_its_schedule(n_ranks: int, n_words: int) -> None:
    sent = []
    for rank in range(n_ranks):
        shape = Shape(Operation.ALL_REDUCE, rank, n_ranks, (n_words,), 8, order_free=True)
        rows = make_program(shape, choose(shape)).rows
        sent.append(8 * int(rows[rows[:, ACTION] == SEND, COUNT].sum()))
    # Parts of an array that ranks do not divide evenly differ by an element for each phase.
    assert np.mean(sent) == pytest.approx(all_reduce_bytes(8 * n_words, n_ranks), rel=0.35, abs=16 * n_ranks)


def test_rounds_of_255_leaves_are_few_and_split_everything() -> None:
    rounds = rounds_of(1_000_000, 255)
    assert sum(len(each.nodes) for each in rounds[1:]) == 254
    assert len(rounds) <= 40


def test_data_mode_sends_at_most_half_of_two_doubles_a_bin_where_workers_have_features() -> None:
    for n_features in FEATURES:
        for n_ranks in RANKS:
            model = CommunicationModel(10_000_000, n_features, n_ranks, 255)
            if n_features >= 4 * n_ranks:
                assert model.tree("data").bytes_sent <= 0.5 * model.lightgbm_bytes()


def test_voting_sends_a_tenth_of_data_mode_over_2000_features() -> None:
    for n_ranks in (2, 4, 16, 32):
        model = CommunicationModel(10_000_000, 2_000, n_ranks, 255)
        assert model.tree("voting").bytes_sent <= 0.1 * model.tree("data").bytes_sent


def test_page_has_the_table_of_the_model() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert replace_section(page, SECTION, "") != page
    assert model_table() in page, "run python -m benchmarks.bench_communication"

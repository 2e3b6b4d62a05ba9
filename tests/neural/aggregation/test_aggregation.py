"""Aggregates of updates: robust ones against plain loops, secure sums bit by bit, privacy against integration."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmlgbm.neural.aggregation.fixed_point import from_ring, to_ring
from dmlgbm.neural.aggregation.key_agreement import new_private_key, public_key, shared_secret, x25519
from dmlgbm.neural.aggregation.masking import MaskingClient, unmasked
from dmlgbm.neural.aggregation.privacy import clipped, gaussian_noise, renyi_divergence, rounds_within, spent_epsilon
from dmlgbm.neural.aggregation.robust import ROBUST_AGGREGATES
from dmlgbm.neural.aggregation.secret_sharing import make_shares, recovered
from tests.reference import shared_training as reference


@pytest.mark.parametrize(("n_updates", "n_hostile"), [(5, 1), (9, 2), (10, 3), (4, 0)])
def test_robust_aggregates_are_those_of_plain_loops(n_updates: int, n_hostile: int) -> None:
    updates = np.random.default_rng(1).normal(size=(n_updates, 23)) + 100.0
    for name, expected in (
        ("krum", reference.krum(updates, n_hostile)),
        ("trimmed_mean", reference.trimmed_mean(updates, n_hostile)),
        ("median", np.array([np.median(column) for column in updates.T])),
    ):
        np.testing.assert_allclose(ROBUST_AGGREGATES[name](updates, n_hostile), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ROBUST_AGGREGATES)
def test_hostile_updates_do_not_move_robust_aggregates_far(name: str) -> None:
    rng = np.random.default_rng(2)
    honest = rng.normal(1.0, 0.1, size=(8, 50))
    updates = np.concatenate([honest, np.full((2, 50), -1e6)])[rng.permutation(10)]
    result = ROBUST_AGGREGATES[name](updates, 2)
    assert np.abs(result - 1.0).max() < 0.5
    assert np.abs(updates.mean(axis=0) - 1.0).min() > 1e5


@pytest.mark.parametrize("name", ROBUST_AGGREGATES)
def test_robust_aggregates_refuse_too_few_updates(name: str) -> None:
    with pytest.raises(ValueError, match="2"):
        ROBUST_AGGREGATES[name](np.zeros((4, 3)), 2)


def test_key_agreement_gives_the_values_of_rfc_7748() -> None:
    alice = bytes.fromhex(ALICE)
    assert public_key(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert public_key(bytes.fromhex(BOB)).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert x25519(alice, public_key(bytes.fromhex(BOB))).hex() == shared
    assert x25519(bytes.fromhex(BOB), public_key(alice)).hex() == shared
    with pytest.raises(ValueError, match="small order"):
        shared_secret(alice, bytes(32), "mask")


ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"


def test_any_threshold_of_shares_recovers_a_secret_and_fewer_do_not() -> None:
    secret = new_private_key()
    shares = dict(enumerate(make_shares(secret, 7, 4), start=1))
    for holders in ((1, 2, 3, 4), (7, 5, 3, 1), (2, 3, 4, 5, 6, 7)):
        assert recovered({holder: shares[holder] for holder in holders}, 4) == secret
    with pytest.raises(ValueError, match="only 3"):
        recovered({holder: shares[holder] for holder in (1, 2, 3)}, 4)
    assert all(share[:32] != secret for share in shares.values())


@pytest.mark.parametrize("lost", [(), (2,), (0, 4)], ids=str)
def test_masked_vectors_add_up_to_the_plain_fixed_point_sum_bit_by_bit(lost: tuple[int, ...]) -> None:
    n_clients, threshold = 6, 4
    values = np.random.default_rng(5).normal(size=(n_clients, 40))
    plain = [to_ring(vector, 24, n_clients) for vector in values]
    clients = [MaskingClient(number, n_clients, threshold) for number in range(n_clients)]
    publics = [client.publics() for client in clients]
    parcels = [client.parcels(publics) for client in clients]
    for client in clients:
        client.receive(parcels)
    arrived = [number not in lost for number in range(n_clients)]
    masked = {client.number: client.masked(plain[client.number]) for client in clients if arrived[client.number]}
    for number, vector in masked.items():
        assert not np.any(vector == plain[number])
    total = np.sum(list(masked.values()), axis=0, dtype=np.uint64)
    messages = {client.number: client.revealed(arrived) for client in clients if arrived[client.number]}
    result = unmasked(total, arrived, publics, messages, threshold)
    expected = np.sum([plain[number] for number in masked], axis=0, dtype=np.uint64)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_allclose(from_ring(result, 24), values[arrived].sum(axis=0), atol=n_clients * 2.0**-25)


def test_fixed_point_refuses_what_could_overflow() -> None:
    with pytest.raises(ValueError, match="fixed_point_bits"):
        to_ring(np.array([2.0**40]), 24, 10)


def test_accountant_agrees_with_numerical_integration() -> None:
    for order, rate, noise in ((2, 0.1, 1.0), (8, 0.01, 1.1), (5, 0.5, 2.0), (3, 1.0, 1.5)):
        expected = reference.renyi_by_integration(order, rate, noise)
        assert renyi_divergence(order, rate, noise) == pytest.approx(expected, rel=1e-5)


def test_epsilon_grows_with_rounds_and_falls_with_noise() -> None:
    spent = [spent_epsilon(1.0, 0.1, rounds, 1e-5) for rounds in (0, 1, 10, 100)]
    assert spent[0] == 0.0
    assert spent == sorted(spent)
    assert spent_epsilon(2.0, 0.1, 100, 1e-5) < spent[-1]
    assert math.isinf(spent_epsilon(0.0, 0.1, 1, 1e-5))
    rounds = rounds_within(1.0, 0.1, spent[-1] + 1e-9, 1e-5)
    assert rounds == 100


def test_clipping_bounds_length_and_noise_has_its_deviation() -> None:
    update = np.full(100, 3.0)
    assert np.linalg.norm(clipped(update, 1.0)) == pytest.approx(1.0)
    assert clipped(update, 100.0) is update
    assert gaussian_noise(7, 100_000, 2.5).std() == pytest.approx(2.5, rel=0.02)

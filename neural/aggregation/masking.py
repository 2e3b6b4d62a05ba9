"""Secure aggregation (Bonawitz and others, 2017): the sum of all vectors is learnt, and no single vector is.

Every pair of clients shares a mask that one adds and the other subtracts, so masks vanish in the sum; each client adds
a mask of its own as well. Both kinds grow from secrets that were shared out before: of a client that was lost, the
others give away the key of its pairs, of one that arrived, the seed of its own mask, and never both of one
client. Clients follow the protocol but are curious; messages between them travel through everybody's hands, encrypted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from dmlgbm.neural.aggregation.fixed_point import Ring
from dmlgbm.neural.aggregation.key_agreement import KEY_BYTES, new_private_key, public_key, shared_secret
from dmlgbm.neural.aggregation.secret_sharing import SHARE_BYTES, make_shares, recovered

PUBLIC_BYTES = 2 * KEY_BYTES
PARCEL_BYTES = 2 * SHARE_BYTES


class MaskingClient:
    """One client in one round: client `number` of `n_clients`, counted from 0."""

    def __init__(self, number: int, n_clients: int, threshold: int) -> None:
        self.number, self.n_clients, self.threshold = number, n_clients, threshold
        self._pair_key, self._parcel_key, self._own_seed = (new_private_key() for _ in range(3))
        self._publics: Sequence[bytes] = ()
        self._held: list[bytes] = []
        self._products: dict[bytes, bytes] = {}

    def publics(self) -> bytes:
        """First message: the public keys for masks and for parcels."""
        return public_key(self._pair_key) + public_key(self._parcel_key)

    def parcels(self, publics: Sequence[bytes]) -> bytes:
        """Second message, from everybody's first: for every client its shares of this one's secrets, encrypted."""
        self._publics = publics
        shares = [make_shares(secret, self.n_clients, self.threshold) for secret in (self._own_seed, self._pair_key)]
        return b"".join(
            _crossed(own + pair, self._parcel_stream(other, self.number, other))
            for other, (own, pair) in enumerate(zip(*shares, strict=True))
        )

    def receive(self, parcels: Sequence[bytes]) -> None:
        """Take the own parcel out of everybody's second message."""
        mine = slice(self.number * PARCEL_BYTES, (self.number + 1) * PARCEL_BYTES)
        self._held = [
            _crossed(parcel[mine], self._parcel_stream(sender, sender, self.number))
            for sender, parcel in enumerate(parcels)
        ]

    def masked(self, values: Ring) -> Ring:
        """Third message: the vector under all its masks."""
        total = values + mask_from(self._own_seed, len(values))
        for other in range(self.n_clients):
            if other != self.number:
                mask = mask_from(_pair_seed(self._pair_key, self._publics, other), len(values))
                total = total + mask if self.number < other else total - mask
        return total

    def revealed(self, arrived: Sequence[bool]) -> bytes:
        """Last message: of each client one share, of its own seed if it arrived and of its pair key if it was lost."""
        return b"".join(
            held[:SHARE_BYTES] if here else held[SHARE_BYTES:] for held, here in zip(self._held, arrived, strict=True)
        )

    def _parcel_stream(self, other: int, sender: int, receiver: int) -> bytes:
        """The same for both ends; each parcel has its own. One product of keys serves both directions."""
        key = self._publics[other][KEY_BYTES:]
        if key not in self._products:
            self._products[key] = shared_secret(self._parcel_key, key, "parcels")
        return _stream(self._products[key] + f"{sender} to {receiver}".encode(), PARCEL_BYTES)


def unmasked(
    total: Ring, arrived: Sequence[bool], publics: Sequence[bytes], revealed: Mapping[int, bytes], threshold: int
) -> Ring:
    """The plain sum of the vectors that arrived, from their masked sum and the last messages of who is left."""
    for client, here in enumerate(arrived):
        stretch = slice(client * SHARE_BYTES, (client + 1) * SHARE_BYTES)
        secret = recovered({holder + 1: message[stretch] for holder, message in revealed.items()}, threshold)
        if here:
            total = total - mask_from(secret, len(total))
            continue
        for other, other_here in enumerate(arrived):
            if other_here:  # take out what `other` added for the client that was lost
                mask = mask_from(_pair_seed(secret, publics, other), len(total))
                total = total - mask if other < client else total + mask
    return total


def mask_from(seed: bytes, count: int) -> Ring:
    """Numbers that nobody without the seed can tell from random ones."""
    return np.frombuffer(_stream(seed, 8 * count), "<u8").astype(np.uint64)


def _pair_seed(private: bytes, publics: Sequence[bytes], other: int) -> bytes:
    return shared_secret(private, publics[other][:KEY_BYTES], "mask")


def _stream(seed: bytes, count: int) -> bytes:
    return hashlib.shake_256(seed).digest(count)


def _crossed(message: bytes, stream: bytes) -> bytes:
    return (np.frombuffer(message, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()

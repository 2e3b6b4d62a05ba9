"""Shamir's secret sharing: any `threshold` of the shares give the secret back, fewer say nothing about it.

A secret is the value at 0 of a random polynomial over the field of 2**521 - 1; holder k (from 1) has its value at k.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

_PRIME = 2**521 - 1
SHARE_BYTES = 66


def make_shares(secret: bytes, n_holders: int, threshold: int) -> list[bytes]:
    """Shares of 32 secret bytes for holders 1 to n_holders."""
    if not 1 <= threshold <= n_holders:
        raise ValueError(f"threshold must be from 1 to {n_holders}, got {threshold}")
    polynomial = [int.from_bytes(secret, "little"), *(secrets.randbelow(_PRIME) for _ in range(threshold - 1))]
    shares = []
    for holder in range(1, n_holders + 1):
        value = 0
        for coefficient in reversed(polynomial):
            value = (value * holder + coefficient) % _PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "little"))
    return shares


def recovered(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret from the shares of at least `threshold` holders (interpolation at 0)."""
    if len(shares) < threshold:
        raise ValueError(f"{threshold} shares are needed to recover a secret, only {len(shares)} are left")
    chosen = sorted(shares)[:threshold]
    secret = 0
    for holder in chosen:
        above = below = 1
        for other in chosen:
            if other != holder:
                above = above * other % _PRIME
                below = below * (other - holder) % _PRIME
        secret += int.from_bytes(shares[holder], "little") * above * pow(below, -1, _PRIME)
    value = secret % _PRIME
    if value >> 256:
        raise ValueError("the shares do not belong together")
    return value.to_bytes(32, "little")

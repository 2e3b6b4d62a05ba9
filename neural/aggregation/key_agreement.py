"""X25519 (RFC 7748): two parties that know each other's public key share a secret that nobody else can compute.

Written with Python integers: a product takes about a millisecond and its time depends on the key. It is for
aggregation among parties that follow the protocol, not for strangers who can measure time.
"""

from __future__ import annotations

import hashlib
import secrets

KEY_BYTES = 32
_PRIME = 2**255 - 19
_A24 = 121665
_BASE = (9).to_bytes(KEY_BYTES, "little")


def new_private_key() -> bytes:
    """32 random bytes from the system."""
    return secrets.token_bytes(KEY_BYTES)


def public_key(private: bytes) -> bytes:
    """What others may know."""
    return x25519(private, _BASE)


def shared_secret(private: bytes, public: bytes, purpose: str) -> bytes:
    """The secret of two parties for one purpose; both sides get the same."""
    product = x25519(private, public)
    if not any(product):
        raise ValueError("a public key of small order was received, which no honest client sends")
    return hashlib.sha256(purpose.encode() + b"\0" + product).digest()


def x25519(scalar: bytes, point: bytes) -> bytes:
    """The product of a scalar and the u-coordinate of a point on Curve25519 (Montgomery ladder)."""
    k = int.from_bytes(scalar, "little") & ~7 & ~(1 << 255) | (1 << 254)
    u = int.from_bytes(point, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3, swapped = 1, 0, u, 1, 0
    for t in range(254, -1, -1):
        bit = k >> t & 1
        if bit != swapped:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swapped = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % _PRIME, b * b % _PRIME, d * a % _PRIME, c * b % _PRIME
        x3, z3 = (da + cb) ** 2 % _PRIME, u * (da - cb) ** 2 % _PRIME
        e = aa - bb
        x2, z2 = aa * bb % _PRIME, e * (aa + _A24 * e) % _PRIME
    if swapped:
        x2, z2 = x3, z3
    return (x2 * pow(z2, _PRIME - 2, _PRIME) % _PRIME).to_bytes(KEY_BYTES, "little")

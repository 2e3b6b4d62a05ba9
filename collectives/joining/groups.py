"""Splitting a communicator: ranks with one color become a world of their own, with connections of their own.

Because groups share no connection with each other or with the whole, calls in one never wait for calls in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from dmlgbm.collectives.communicator import Communicator

# Longer than any address: the path of a Unix socket has at most 108 bytes.
_ADDRESS_BYTES = 300
# What a rank that joins no group says instead of its color.
_NO_COLOR = -1


class Regrouping(Protocol):
    """How the ranks of a communicator come together in smaller groups."""

    def open(self, name: str, takes_part: bool) -> str:
        """Get ready to be reached, and return the address for the others."""

    def join(self, name: str, addresses: Sequence[str], members: Sequence[int], rank: int) -> Communicator:
        """Become rank `rank` of the group; `addresses` are those of the members."""


def split(
    communicator: Communicator, regrouping: Regrouping, number: int, color: int | None, key: int | None
) -> Communicator | None:
    """The communicator of this rank's group, or None if it joins none. `number` tells the splits of a world apart."""
    if color is not None and not 0 <= color < 1 << 62:
        raise ValueError(f"color must be None or a number from 0 to 2**62 - 1, got {color}")
    order = communicator.rank if key is None else key
    wishes = communicator.all_gather(np.array([_NO_COLOR if color is None else color, order], np.int64))
    name = f"split {number} color {color}"
    address = regrouping.open(name, color is not None).encode()
    addresses = communicator.all_gather(np.array(address, f"S{_ADDRESS_BYTES}"))
    if color is None:
        return None
    members = sorted(np.flatnonzero(wishes[:, 0] == color).tolist(), key=lambda rank: (wishes[rank, 1], rank))
    return regrouping.join(
        name, [addresses[member].decode() for member in members], members, members.index(communicator.rank)
    )

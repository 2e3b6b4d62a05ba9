"""The record that brings the nodes of a store together: the coordinator's address and the session they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dmlgbm.collectives.joining.addresses import Address
from dmlgbm.collectives.joining.negotiation import Security, TlsContexts

MAXIMUM_MESSAGE_BYTES = 1 << 30


@dataclass(frozen=True)
class Membership:
    """What every node of a store is given. No message may be larger than `maximum_message_bytes`."""

    coordinator: str
    security: Security
    generation: int = 0
    maximum_message_bytes: int = MAXIMUM_MESSAGE_BYTES

    def __post_init__(self) -> None:
        Address.parse(self.coordinator)

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON can hold it, without TLS contexts; the secret in it is for members only."""
        return {
            "coordinator": self.coordinator,
            "session": self.security.session,
            "secret": self.security.secret.hex(),
            "generation": self.generation,
            "maximum_message_bytes": self.maximum_message_bytes,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], tls: TlsContexts | None = None) -> Self:
        security = Security(str(record["session"]), bytes.fromhex(record["secret"]), tls)
        return cls(
            str(record["coordinator"]), security, int(record["generation"]), int(record["maximum_message_bytes"])
        )

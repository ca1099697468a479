"""The topics of an event log that does not create them by itself, as an operator sees them.

Servers never create a topic: a missing one is a mistake of the deployment, not a reason to start empty.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic without its records. The number of partitions never changes: the order of its chats depends on it."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


class TopicControl(Protocol):
    """All calls may be repeated. Names are those of the log, with the deployment's prefix."""

    async def describe(self, names: Sequence[str], *, timeout_s: float) -> Mapping[str, Topic]:
        """Those that are there, with all their settings."""
        ...

    async def defaults(self, *, timeout_s: float) -> Mapping[str, str]:
        """The settings of the brokers themselves."""
        ...

    async def create(self, topic: Topic, *, timeout_s: float) -> None:
        """One that is there stays as it is."""
        ...

    async def adjust(self, topic: Topic, *, timeout_s: float) -> None:
        """Sets these settings. Partitions and replicas stay as they are."""
        ...

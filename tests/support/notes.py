"""An observer of the durability plane that remembers what its operators would have been told."""

from collections.abc import Mapping, Sequence

from seriatim.domain.errors import SeriatimError
from seriatim.durability.observer import DurabilityObserver


class Notes(DurabilityObserver):
    """What the plane told its operators."""

    def __init__(self) -> None:
        self.hits = 0
        self.counted = {"allocated": 0, "persisted": 0, "published": 0, "answered": 0}
        self.refusals: list[str] = []
        self.republications = 0
        self.seals: list[int] = []
        self.collisions: list[int] = []
        self.missing_counters: list[str] = []
        self.unreadable: list[tuple[str, str]] = []
        self.beyond_end: list[tuple[str, int, int]] = []
        self.settled: list[str] = []
        self.failures: list[BaseException] = []

    def allocated(self, count: int, seconds: float) -> None:
        self.counted["allocated"] += count

    def persisted(self, stored: Mapping[str, int]) -> None:
        self.counted["persisted"] += sum(stored.values())

    def published(self, count: int, seconds: float) -> None:
        self.counted["published"] += count

    def answered(self, seconds: Sequence[float]) -> None:
        self.counted["answered"] += len(seconds)

    def hit(self) -> None:
        self.hits += 1

    def refused_by_store(self, kind: str) -> None:
        self.refusals.append(kind)

    def republished(self, count: int) -> None:
        self.republications += count

    def sealed(self, chat_id: str, sequence: int) -> None:
        self.seals.append(sequence)

    def duplicate_sequence(self, chat_id: str, sequence: int) -> None:
        self.collisions.append(sequence)

    def counter_missing(self, chat_id: str) -> None:
        self.missing_counters.append(chat_id)

    def row_unreadable(self, chat_id: str, error: SeriatimError) -> None:
        self.unreadable.append((chat_id, error.message))

    def cursor_beyond_end(self, chat_id: str, cursor: int, end: int) -> None:
        self.beyond_end.append((chat_id, cursor, end))

    def reconciled(self, chat_id: str) -> None:
        self.settled.append(chat_id)

    def failed(self, where: str, error: BaseException) -> None:
        self.failures.append(error)

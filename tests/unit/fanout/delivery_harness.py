"""A deliverer with stand-ins around it, for tests of who gets a message."""

from seriatim.fanout.delivery import Deliverer
from seriatim.fanout.recipients import Recipients
from tests.unit.fanout.fakes import (
    CHAT,
    FakeDirectory,
    FakePush,
    FakeRoster,
    FixedClock,
    RecordingObserver,
    record,
    registration,
)


class DeliveryHarness:
    """Ann writes from her phone; Bob and Cid are members; everything works."""

    def __init__(self) -> None:
        self.roster = FakeRoster(1, "ann", "bob", "cid")
        self.directory = FakeDirectory(
            registration("ann-phone", gateway_id="gw-1"),
            registration("ann-laptop", gateway_id="gw-2"),
            registration("bob-phone", gateway_id="gw-1"),
            registration("cid-phone", gateway_id="gw-1"),
        )
        self.push = FakePush()
        self.observer = RecordingObserver()
        recipients = Recipients(self.roster, self.directory, FixedClock(), self.observer)
        self.deliverer = Deliverer(recipients, self.push, self.observer)

    async def handle(self, *values: bytes, chat_id: str = CHAT) -> None:
        """These events of one chat, in one run."""
        await self.run(*((chat_id, value) for value in values))

    async def run(self, *events: tuple[str, bytes]) -> None:
        await self.deliverer.handle(
            [record(value, offset=offset, key=chat_id.encode()) for offset, (chat_id, value) in enumerate(events)]
        )

    def reached(self) -> list[str]:
        return [each for _, connection_ids, _ in self.push.sent() for each in connection_ids]

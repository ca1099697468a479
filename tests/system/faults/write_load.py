"""Users who go on writing while things break, with clients as users have them, and what they saw of it.

A client repeats with the same id what was not acknowledged, goes to another gateway when its own is gone, and syncs.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from seriatim.domain import limits
from tests.system.devices import Device, Json, Lost, Refused, faults, same
from tests.system.users import Endpoint, User

PACE_S = 0.25  # between two messages of one user: below the rate limit, and two cores can do something else, too
RETRY_S = 0.3  # clients of real users wait longer and longer; here the time of the server is to be seen, not theirs
POLL_S = 0.02
PATIENCE_S = 120.0  # an open breaker takes 30 s of it, and a machine that does much else may take the rest


class Moment(NamedTuple):
    """When a message was acknowledged or seen, and at which gateway."""

    at: float
    port: int
    chat_id: str


class RetryingDevice(Device):
    """`gateways`: its own first, then where it goes when that is gone. `errors`: when, and what the user saw.

    Only what belongs to `chats`, those of its load, counts as acknowledged or seen: its user may have talked before,
    and fanout may still push, or push again, what was said then. That says nothing about this load, early or late.
    An `impatient` device gives up what was refused once, and writes something else.
    """

    def __init__(
        self, user: User, gateways: Sequence[Endpoint], chats: Sequence[str], *, impatient: bool = False
    ) -> None:
        super().__init__(user)
        self.acked_at: dict[str, Moment] = {}  # by message_id: of the own ones
        self.seen_at: dict[str, Moment] = {}  # by message_id: of the others
        self.waits: list[tuple[float, float]] = []  # when something was written, and how long it took
        self.given_up: list[str] = []
        self.errors: list[tuple[float, str]] = []
        self.refused_after: list[float] = []  # how long it took to be refused
        self._gateways = gateways
        self._chats = chats
        self._impatient = impatient
        self._at = 0

    async def connect(self) -> None:
        self.user.gateway = self._gateways[self._at % len(self._gateways)]
        try:
            async with asyncio.timeout(limits.CLIENT_GREETING_WAIT_S):
                await super().connect()
        except (Lost, TimeoutError) as error:
            await self.drop()
            raise Lost(str(error) or "no greeting came") from None

    async def drop(self) -> None:
        """Ends the connection without a word, as a client does that has waited long enough."""
        if self._socket is not None:
            self._socket.transport.abort()
        await self.wait_closed()

    async def write(self, chat_id: str, content: str) -> None:
        """Returns once it is acknowledged, or its writer has given it up after a refusal."""
        began = time.monotonic()
        try:
            await self.send(chat_id, content)
        except (Refused, Lost) as trouble:
            await self._retry(chat_id, trouble)
        self.waits.append((began, time.monotonic() - began))

    async def _retry(self, chat_id: str, trouble: Refused | Lost) -> None:
        while self.unacked[chat_id]:
            self.errors.append((time.monotonic(), _seen(trouble)))
            if isinstance(trouble, Refused) and self._impatient:
                self.given_up += self.unacked[chat_id]
                self.unacked[chat_id].clear()
                break
            await asyncio.sleep(RETRY_S)
            try:
                if isinstance(trouble, Lost):
                    await self._move()
                await self._catch_up()
                await self.resend(chat_id)
            except (Refused, Lost) as again:
                trouble = again

    async def listen(self) -> None:
        """Until cancelled, and wherever it can."""
        assert self._reading is not None
        while True:
            await asyncio.wait((self._reading,))  # which goes on if we are cancelled
            self.errors.append((time.monotonic(), _seen(Lost())))
            while self._reading.done() or not all(map(self._synced.get, self._chats)):
                await asyncio.sleep(RETRY_S)
                with suppress(Refused, Lost):
                    if self._reading.done():
                        await self._move()
                    await self._catch_up()

    async def _move(self) -> None:
        self._at += 1
        await self.connect()

    async def _catch_up(self) -> None:
        """A connection begins with a sync of each chat; a refused one is repeated like anything else."""
        for chat_id in self._chats:
            if not self._synced.get(chat_id):
                await self.sync(chat_id)

    async def _ask(self, question: str, frame: Json) -> Json:
        began = time.monotonic()
        try:
            async with asyncio.timeout(limits.CLIENT_SEND_UNANSWERED_S):
                return await super()._ask(question, frame)
        except Refused:
            self.refused_after.append(time.monotonic() - began)
            raise
        except TimeoutError:
            await self.drop()
            raise Lost("no answer") from None

    def _acked(self, ack: Json) -> None:
        super()._acked(ack)
        self.acked_at.setdefault(ack["message_id"], self._now(ack["chat_id"]))

    def _keep(self, message: Json, *, pushed: bool) -> None:
        super()._keep(message, pushed=pushed)
        if message["chat_id"] not in self._chats:
            return
        # An own message that comes by a sync is as good as its ack.
        known = self.acked_at if message["sender_id"] == self.user.user_id else self.seen_at
        known.setdefault(message["message_id"], self._now(message["chat_id"]))

    def _now(self, chat_id: str) -> Moment:
        return Moment(time.monotonic(), (self.user.gateway or self.user.server).port, chat_id)


class WriteLoad:
    """Every user writes to all chats in turn, each message until it is acknowledged, for as long as the block lasts.

    But for the last `silent` of them, who only read: an ack would tell their gateway what they have missed.
    """

    def __init__(self, devices: Sequence[RetryingDevice], chats: Sequence[str], *, silent: int = 0) -> None:
        self.devices = devices
        self.chats = chats
        self.writers, self._readers = devices[: len(devices) - silent], devices[len(devices) - silent :]
        self._over = False
        self._writing: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "WriteLoad":
        await asyncio.gather(*(device.connect() for device in self.devices))
        await asyncio.gather(*(device.sync(chat_id) for device in self.devices for chat_id in self.chats))
        self._writing = [asyncio.create_task(self._write(number)) for number in range(len(self.writers))]
        self._reading = [asyncio.create_task(device.listen()) for device in self._readers]
        return self

    async def __aexit__(self, *reason: object) -> None:
        self._over = True
        failed = reason[0] is not None
        for task in (*self._reading, *(self._writing if failed else ())):
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        await asyncio.gather(*self._writing, return_exceptions=failed)
        if failed:
            await asyncio.gather(*(device.drop() for device in self.devices))

    @property
    def errors(self) -> list[str]:
        """The errors that users got, one code for each time."""
        return [what for device in self.devices for _, what in device.errors]

    async def progress(self) -> None:
        """Returns once everybody has got two more messages through."""
        wanted = [(device, len(device.acked_at) + 2) for device in self.writers]
        await self.until(lambda: all(len(device.acked_at) >= count for device, count in wanted), "everybody is heard")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for what must come, and hears of it soon if the load has ended with a bug."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            for task in (*self._writing, *self._reading):
                if task.done():
                    task.result()
            assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
            await asyncio.sleep(POLL_S)

    async def _write(self, place: int) -> None:
        device, number = self.writers[place], place
        await asyncio.sleep(PACE_S * place / len(self.writers))
        while not self._over:
            number += 1
            await device.write(self.chats[number % len(self.chats)], f"number {number} of user {place}")
            await asyncio.sleep(PACE_S)

    async def check_agreement(self) -> None:
        """Everyone has everything, once, in the same order, and so does the history. Then all hang up, in any case."""
        try:
            await self._check_agreement()
        finally:
            await asyncio.gather(*(device.drop() for device in self.devices))

    async def _check_agreement(self) -> None:
        reader = self.devices[0].user
        acked = {message_id for device in self.devices for message_id in device.acked_at}
        given_up = {key for device in self.devices for key in device.given_up}
        for chat_id in self.chats:
            history = [same(each) for each in await asyncio.to_thread(reader.history, chat_id)]
            try:
                await asyncio.gather(*(device.has(len(history), chat_id) for device in self.devices))
            except TimeoutError:
                raise AssertionError(f"not seen in time: {self._unseen(chat_id, history)}") from None
            agreed = [device.messages(chat_id) == history for device in self.devices]
            assert agreed == [True] * len(self.devices), f"not in the history: {self._beyond(chat_id, history)}"
            keys = [each["client_message_id"] for each in history]
            assert len(dict.fromkeys(keys)) == len(keys), "a message is there twice"
            stored = {each["message_id"] for each in history if each["client_message_id"] not in given_up}
            assert stored <= acked, "what no device gave up was acknowledged"
            acked -= {each["message_id"] for each in history}
        lost = self._lost(acked)
        assert lost == {}, f"acknowledged and not stored: {lost}; and what devices say: {faults(self.devices)}"
        invented = await self._invented()
        assert invented == {}, f"pushed of other chats, and not in their history: {invented}"
        await asyncio.gather(*(device.close() for device in self.devices))
        assert faults(self.devices) == []
        assert [device.unacked for device in self.devices if any(device.unacked.values())] == []

    def _lost(self, message_ids: set[str]) -> Mapping[str, Sequence[tuple[str, Moment]]]:
        """By whom it was written, and when it was acknowledged."""
        found = {
            f"user {number}": [(each, device.acked_at[each]) for each in device.acked_at if each in message_ids]
            for number, device in enumerate(self.devices)
        }
        return {who: what for who, what in found.items() if what}

    async def _invented(self) -> Mapping[str, Sequence[Json]]:
        """By whom it was seen: what came of a chat that is not of this load, and is not in the history of that chat.

        What was seen is asked before the history: who was shown a message finds it there.
        """
        found: dict[str, list[Json]] = {}
        for number, device in enumerate(self.devices):
            for chat_id in [each for each in device.chats() if each not in self.chats]:
                seen = device.messages(chat_id)
                history = [same(each) for each in await asyncio.to_thread(device.user.history, chat_id)]
                if unknown := [each for each in seen if each not in history]:
                    found.setdefault(f"user {number}", []).extend(unknown)
        return found

    def _beyond(self, chat_id: str, history: Sequence[Json]) -> Mapping[str, Sequence[Json]]:
        """By whom, and what: a message that the store has lost after its ack is found here."""
        found = {
            f"user {number}": [each for each in device.messages(chat_id) if each not in history]
            for number, device in enumerate(self.devices)
        }
        return {who: what for who, what in found.items() if what}

    def _unseen(self, chat_id: str, history: Sequence[Json]) -> Mapping[str, Sequence[Json]]:
        """By whom, and what."""
        return {
            f"user {number}": [each for each in history if each not in device.messages(chat_id)]
            for number, device in enumerate(self.devices)
            if len(device.messages(chat_id)) < len(history)
        }


def _seen(trouble: Refused | Lost) -> str:
    """As it stands in a table."""
    return str(trouble.error["code"]) if isinstance(trouble, Refused) else "connection lost"

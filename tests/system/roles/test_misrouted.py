"""Two ingest processes write the same chats at once, because 15 % of the sends reach the wrong one.

The run on the real engines is observed once, and each test checks one promise. What is sent is known: how much
of it is misrouted depends on the seed alone.
"""

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition

from seriatim.domain.events import MessagePersisted, decode
from seriatim.domain.message import Draft
from seriatim.domain.sharding import partition
from seriatim.engines.kafka.cluster import Cluster
from seriatim.operations.topics import PARTITIONS
from seriatim.ports.event_log import MESSAGES
from tests.system.deployment import Deployment, Process
from tests.system.devices import Device, Json, Refused, faults, same, signed_in
from tests.system.roles.misrouting_proxy import MisroutingProxy, gateways, misrouting_proxy
from tests.system.users import User

WRITERS, CHATS, MESSAGES_EACH = 24, 3, 30
MISROUTED_SHARE, SEED = 0.15, 4
TWINS = 12  # sends that go through both ingests at once
PACE_S = CHATS * 0.1  # of one writer in one chat: all together just below the rate limit
PATIENCE_S = 20.0  # for what is under way when the last ack has come
PUSHED = "fanout_messages_delivered_rate_total"
REPEATED = "gateway_pushes_repeated_total"
FILLED = "gateway_messages_filled_total"

pytestmark = pytest.mark.timeout(300)


class RecordingDevice(Device):
    """A device that counts what it receives, because once is the promise.

    It is not content with an error: on a machine that does much else a request may run out of time.
    """

    def __init__(self, user: User) -> None:
        super().__init__(user)
        self.heard: Counter[tuple[str, int]] = Counter()  # message frames by chat and sequence
        self.own_heard = 0
        self.answers: dict[str, list[Json]] = {}  # acks by client_message_id
        self.refusals: list[Json] = []

    async def sync_all(self, chats: Sequence[str]) -> None:
        await self.connect()
        for chat_id in chats:
            while not self._synced.get(chat_id):
                with suppress(Refused):
                    await self.sync(chat_id)

    async def write(self, chat_id: str, content: str) -> None:
        """Until it is acknowledged."""
        key = str(uuid.uuid4())
        self.unacked.setdefault(chat_id, {})[key] = content
        while key not in self.answers:
            with suppress(Refused):
                await self._transmit(chat_id, key, content)
            await asyncio.sleep(PACE_S)

    async def write_twice(self, chat_id: str, content: str) -> None:
        """The impatient kind: the repetition is sent before an answer could come."""
        key = str(uuid.uuid4())
        self.unacked.setdefault(chat_id, {})[key] = content
        frame = {"type": "send_message", "chat_id": chat_id, "client_message_id": key, "content": content}
        while len(self.answers.get(key, ())) < 2:
            expected = self._settled(key) + 2
            await self.post(frame)
            await self.post(frame)
            await self.until(lambda: self._settled(key) >= expected)  # noqa: B023 - awaited here

    def answers_in(self, *chats: str) -> list[list[Json]]:
        return [acks for acks in self.answers.values() if acks[0]["chat_id"] in chats]

    def _settled(self, key: str) -> int:
        return len(self.answers.get(key, ())) + len(
            [each for each in self.refusals if each.get("client_message_id") == key]
        )

    def _received(self, frame: Json) -> None:
        super()._received(frame)
        match frame["type"]:
            case "message":
                self.heard[frame["chat_id"], frame["sequence"]] += 1
                self.own_heard += frame["sender_id"] == self.user.user_id
            case "message_ack":
                self.answers.setdefault(frame["client_message_id"], []).append(frame)
            case "error":
                self.refusals.append(frame)
        self.arrived.set()

    def _refused(self, error: Json) -> None:
        if error.get("client_message_id") in (None, *self._waiting):  # else it was written twice, which counts them
            super()._refused(error)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    devices: Sequence[RecordingDevice]
    chats: Sequence[str]
    twins_chat: str
    misrouted_share: float
    histories: Mapping[str, Sequence[Json]]  # as REST tells them
    events: Mapping[str, Sequence[MessagePersisted]]  # as Kafka holds them, by chat
    pushes: int  # that fanout handed to gateways, one for each connection
    repeated: int = 0  # pushes that gateways recognised and dropped
    filled: int = 0  # messages that gateways read back

    @property
    def repeated_min(self) -> int:
        """A push to another user becomes a frame or is dropped; and a frame may have been read back instead."""
        own_pushes = sum(not event.origin_connection_id for events in self.events.values() for event in events)
        others_frames = sum(device.heard.total() - device.own_heard for device in self.devices)
        return self.pushes - own_pushes - others_frames

    @property
    def repeated_max(self) -> int:
        """A push to the sender, too; unless the ack took its place while it waited."""
        return self.pushes - sum(device.heard.total() for device in self.devices) + self.filled


@pytest.fixture(scope="module")
def observation(deployment: Deployment) -> Observation:
    return asyncio.run(observe(deployment))


# --- the promises -----------------------------------------------------------------------------------------------------


def test_some_sends_were_misrouted_and_each_was_acknowledged_once(observation: Observation) -> None:
    assert 0.12 <= observation.misrouted_share <= 0.18
    for device in observation.devices:
        assert [len(acks) for acks in device.answers_in(*observation.chats)] == [1] * MESSAGES_EACH
        assert not any(device.unacked.values())
        assert {error["code"] for error in device.refusals} <= {"SERVICE_UNAVAILABLE"}


def test_everyone_saw_every_message_in_the_order_of_the_history(observation: Observation) -> None:
    assert faults(observation.devices) == []
    written = [each["client_message_id"] for chat_id in observation.chats for each in observation.histories[chat_id]]
    assert len(written) == len({*written}) == WRITERS * MESSAGES_EACH
    for chat_id, history in observation.histories.items():
        for device in observation.devices:
            assert device.messages(chat_id) == history


def test_no_device_was_sent_a_message_twice(observation: Observation) -> None:
    for device in observation.devices:
        assert {*device.heard.values()} == {1}


def test_what_one_writer_wrote_after_an_acknowledgement_stands_after_it(observation: Observation) -> None:
    for history in observation.histories.values():
        for device in observation.devices:
            own = [int(each["content"]) for each in history if each["sender_id"] == device.user.user_id]
            assert own == sorted(own)


def test_kafka_holds_repetitions_of_both_processes_and_first_appearances_are_in_order(observation: Observation) -> None:
    for chat_id in observation.chats:
        events = observation.events[chat_id]
        firsts: dict[int, MessagePersisted] = {}
        for event in events:
            first = firsts.setdefault(event.message.sequence, event)
            assert (event.envelope.event_id, event.message) == (first.envelope.event_id, first.message)
        assert len(events) > len(firsts), "both published what one of them wrote"
        assert [*firsts] == sorted(firsts)
        assert [first.message.message_id for first in firsts.values()] == [
            each["message_id"] for each in observation.histories[chat_id]
        ]
        assert len({event.envelope.producer_id for event in events}) == 2


def test_gateways_count_the_repetitions_that_they_drop(observation: Observation) -> None:
    assert 0 < observation.repeated_min <= observation.repeated <= observation.repeated_max


def test_a_send_repeated_through_the_other_process_at_once_is_one_message(observation: Observation) -> None:
    for device in observation.devices[:TWINS]:
        [acks] = device.answers_in(observation.twins_chat)
        assert len(acks) >= 2
        assert sum(not ack["deduplicated"] for ack in acks) <= 1
        assert len({(ack["sequence"], ack["message_id"]) for ack in acks}) == 1
    assert len(observation.histories[observation.twins_chat]) == TWINS


def test_the_stores_keep_every_invariant(deployment: Deployment, observation: Observation) -> None:
    checked = deployment.check()
    assert checked.returncode == 0, checked.stdout + checked.stderr


# --- the observation --------------------------------------------------------------------------------------------------


async def observe(deployment: Deployment) -> Observation:
    ingests = [f"127.0.0.1:{each.rpc_port}" for each in deployment.ingests]
    async with misrouting_proxy(ingests, seed=SEED, wrong_share=MISROUTED_SHARE) as (proxy, address):
        directory = deployment.engines["SERIATIM_DIRECTORY"]
        async with gateways(deployment.folder, address, directory, 2) as endpoints:
            users = await signed_in(
                lambda number: User(
                    deployment.api, f"+49151{7000 + number:08d}", gateway=endpoints[number % len(endpoints)]
                ),
                WRITERS,
            )
            groups = [await asyncio.to_thread(users[0].create_group, *users[1:]) for _ in range(CHATS + 1)]
            devices = [RecordingDevice(user) for user in users]
            await asyncio.gather(*(device.sync_all(groups) for device in devices))
            return await _observed(deployment, endpoints, proxy, devices, groups)


async def _observed(
    deployment: Deployment,
    endpoints: Sequence[Process],
    proxy: MisroutingProxy,
    devices: Sequence[RecordingDevice],
    groups: Sequence[str],
) -> Observation:
    *chats, twins_chat = groups
    await asyncio.gather(*(_write(device, chat_id) for device in devices for chat_id in chats))
    share = proxy.share
    proxy.misroutes = _the_second_time()
    await asyncio.gather(*(device.write_twice(twins_chat, "0") for device in devices[:TWINS]))
    histories = {
        chat_id: [same(each) for each in await asyncio.to_thread(devices[0].user.history, chat_id)]
        for chat_id in groups
    }
    await _until(
        lambda: all(
            len(device.messages(chat_id)) == len(histories[chat_id]) for device in devices for chat_id in groups
        )
    )
    events = await asyncio.to_thread(_events, deployment.engines["SERIATIM_EVENTS"], groups)
    observation = Observation(
        devices=devices,
        chats=chats,
        twins_chat=twins_chat,
        misrouted_share=share,
        histories=histories,
        events=events,
        # Fanout leaves out the connection that sent, if the event knows it.
        pushes=sum(len(devices) - bool(each.origin_connection_id) for of_chat in events.values() for each in of_chat),
    )
    await _until(lambda: _sum(deployment.fanouts, PUSHED) >= observation.pushes)
    await _until(lambda: _sum(endpoints, REPEATED) >= observation.repeated_min)
    counted = msgspec.structs.replace(
        observation,
        pushes=_sum(deployment.fanouts, PUSHED),
        repeated=_sum(endpoints, REPEATED),
        filled=_sum(endpoints, FILLED),
    )
    await asyncio.gather(*(device.close() for device in devices))
    return counted


async def _until(condition: Callable[[], bool]) -> None:
    """A wait that fails raises nothing: the tests say what is missing, and each says its own."""
    ends = asyncio.get_running_loop().time() + PATIENCE_S
    while not await asyncio.to_thread(condition) and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def _write(device: RecordingDevice, chat_id: str) -> None:
    for number in range(MESSAGES_EACH // CHATS):
        await device.write(chat_id, str(number))


def _the_second_time() -> Callable[[Draft], bool]:
    seen: Counter[str] = Counter()

    def misroutes(draft: Draft) -> bool:
        seen[draft.client_message_id] += 1
        return seen[draft.client_message_id] == 2

    return misroutes


def _events(url: str, chats: Sequence[str]) -> Mapping[str, Sequence[MessagePersisted]]:
    """All that the log holds of these chats, in its order."""
    cluster = Cluster.parse(url)
    consumer = Consumer({**cluster.client_settings("looker"), "group.id": "looker", "enable.auto.commit": False})
    found: dict[str, list[MessagePersisted]] = {chat_id: [] for chat_id in chats}
    try:
        for number in sorted({partition(chat_id, PARTITIONS[MESSAGES]) for chat_id in chats}):
            place = TopicPartition(cluster.prefixed(MESSAGES), number, 0)
            _, end = consumer.get_watermark_offsets(place, PATIENCE_S)
            consumer.assign([place])
            read = 0
            while read < end:
                for record in consumer.consume(end - read, PATIENCE_S):
                    assert record.error() is None
                    event = decode(record.key(), record.value())
                    assert isinstance(event, MessagePersisted)
                    found[event.message.chat_id].append(event)
                    read += 1
    finally:
        consumer.close()
    return found


def _sum(processes: Sequence[Process], metric: str) -> int:
    found = [re.findall(rf"^{metric}\{{[^}}]*\}} (\S+)$", each.metrics(), re.MULTILINE) for each in processes]
    return sum(round(float(value)) for values in found for value in values)

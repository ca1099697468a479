"""Clients that stop reading: warned, given time, closed with directions; and nobody else notices."""

import asyncio
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from seriatim.domain import limits
from tests.system.people import Person
from tests.system.phones import Phone, faults, same, signed_in
from tests.system.raw_line import RawLine
from tests.system.server import ServerProcess, serving, until

Json = dict[str, Any]
LITTLE = 4096  # bytes that the kernel takes for a client that does not read
LOG_GRAIN_S = 0.001  # the log tells milliseconds, cut off
WAVE = 5  # messages of each writer at a time: 300 for one reader, below its warning


@pytest.mark.timeout(240)
async def test_a_client_that_stops_reading_is_warned_given_five_seconds_told_and_closed(tmp_path: Path) -> None:
    """Sixty people write to one, within their bursts; that one has two devices, and one of them stops reading."""
    writers_count, each, text = 60, limits.SEND_BURST_MAX, "x" * 4000
    total = writers_count * each
    with serving(tmp_path / "data", "--log-level", "debug") as server:
        people = await signed_in(lambda number: Person(server, f"+4915100{number:06d}"), writers_count + 1)
        popular, writers = people[0], people[1:]
        second = await asyncio.to_thread(Person, server, popular.phone_number)
        chats = await asyncio.to_thread(_direct_chats, popular, writers)
        healthy = Phone(second)
        await healthy.connect()
        phones = [Phone(writer) for writer in writers]
        await asyncio.gather(*(phone.connect() for phone in phones))
        with RawLine(server, popular.access_token, receive_buffer=LITTLE) as slow:
            for chat_id in chats:
                await healthy.sync(chat_id)
                slow.send({"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": 0})
                assert slow.frame()["type"] == "message_batch"
            acks = 0
            for wave in range(0, each, WAVE):  # few enough at a time that who reads never has much before it
                sends = [
                    phone.send(chat_id, f"{count}{text}")
                    for phone, chat_id in zip(phones, chats, strict=True)
                    for count in range(wave, wave + WAVE)
                ]
                acks += len(await asyncio.gather(*sends))
                await asyncio.gather(*(healthy.has(wave + WAVE, chat_id) for chat_id in chats))
            assert acks == total, "whoever reads is answered, whatever another device does"
            fullest = await asyncio.to_thread(_fullest_until_closed, server, 1)
            received, warnings, closing, code = await asyncio.to_thread(_read_to_the_end, slow)
        assert _grace_s(server) >= limits.SLOW_CONSUMER_GRACE_S - LOG_GRAIN_S
        [warning] = warnings
        assert (warning["code"], warning["grace_period"]) == ("SLOW_CONSUMER", 5)
        assert (
            950 < warning["details"]["buffer_size"] <= warning["details"]["buffer_limit"] == limits.OUTBOUND_FRAMES_MAX
        )
        assert (closing["reason"], closing["reconnect_allowed"], code) == ("slow_consumer", True, 1008)
        assert total - len(received) > limits.OUTBOUND_FRAMES_MAX >= fullest, (
            "more was written to it than there is room for"
        )
        _check_directions(closing["sync_from_sequence"], received, chats, each)
        back = Phone(popular)
        await back.connect()
        for chat_id in chats:
            await back.sync(chat_id)
            history = [same(message) for message in await asyncio.to_thread(popular.history, chat_id)]
            assert len(history) == each
            assert back.messages(chat_id) == history == healthy.messages(chat_id)
        everyone = [healthy, back, *phones]
        await asyncio.gather(*(phone.hang_up() for phone in everyone))
        assert faults(everyone) == []
        assert server.metric("gateway_outbound_frames_max") == 0


@pytest.mark.timeout(240)
async def test_two_hundred_clients_that_stop_reading_cost_the_others_no_ack(tmp_path: Path) -> None:
    """Forty people with five devices each, none of which reads, in one chat with sixty who write."""
    deaf_people, devices, writers_count, burst, text = 40, 5, 60, limits.SEND_BURST_MAX, "x" * 1500
    with serving(tmp_path / "data") as server, ExitStack() as stack:
        deaf = await signed_in(
            lambda number: Person(server, f"+4915200{number % deaf_people:06d}"), deaf_people * devices
        )
        people = await signed_in(lambda number: Person(server, f"+4915100{number:06d}"), writers_count)
        chat_id = await asyncio.to_thread(people[0].create_group, *people[1:], *deaf[:deaf_people])
        lines = [stack.enter_context(RawLine(server, each.access_token, receive_buffer=LITTLE)) for each in deaf]
        phones = [Phone(person) for person in people]
        await asyncio.gather(*(phone.connect() for phone in phones))
        for line in lines:
            line.send({"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": 0})
            assert line.frame()["type"] == "message_batch"
        await asyncio.gather(*(phone.sync(chat_id) for phone in phones))
        acks = await asyncio.gather(*(_write(phone, chat_id, [f"{n}{text}" for n in range(burst)]) for phone in phones))
        assert sum(acks) == writers_count * burst
        await asyncio.gather(*(phone.has(sum(acks), chat_id) for phone in phones))
        assert await asyncio.to_thread(_fullest_until_closed, server, len(lines)) <= limits.OUTBOUND_FRAMES_MAX
        await asyncio.gather(*(phone.hang_up() for phone in phones))
        stack.close()
        assert faults(phones) == []
        await asyncio.to_thread(until, lambda: server.metric("gateway_connections_active") == 0, "nobody is left")


async def _write(phone: Phone, chat_id: str, texts: list[str]) -> int:
    """One after the other; returns how many were acknowledged."""
    return len([await phone.send(chat_id, text) for text in texts])


def _direct_chats(popular: Person, writers: list[Person]) -> list[str]:
    bodies = [{"type": "direct", "member_ids": [writer.user_id]} for writer in writers]
    return [popular.call("POST", "/chats", body).data["chat_id"] for body in bodies]


def _fullest_until_closed(server: ServerProcess, count: int) -> float:
    """The most that was ever seen to wait for one of them until so many slow ones were closed."""
    seen = [0.0]

    def closed() -> bool:
        seen.append(server.metric("gateway_outbound_frames_max"))
        return server.metric("gateway_slow_consumer_disconnects_total") == count

    until(closed, f"{count} slow ones are closed")
    return max(seen)


def _read_to_the_end(slow: RawLine) -> tuple[list[Json], list[Json], Json, int]:
    """Messages, warnings, the closing, and the code of the close."""
    received, warnings = list[Json](), list[Json]()
    while True:
        frame = slow.frame()
        match frame["type"]:
            case "message":
                received.append(frame)
            case "error":
                warnings.append(frame)
            case "connection_closing":
                return received, warnings, frame, slow.close_code()


def _grace_s(server: ServerProcess) -> float:
    warned, closed = (
        datetime.fromisoformat(line["ts"])
        for line in server.lines()
        if line["event"] == "slow_consumer_warned" or line.get("reason") == "slow_consumer"
    )
    return (closed - warned).total_seconds()


def _check_directions(sync_from: dict[str, int], received: list[Json], chats: list[str], each: int) -> None:
    """For each chat that is owed something: from where to sync, so that nothing is left out or sent for nothing."""
    got: dict[str, list[int]] = {chat_id: [] for chat_id in chats}
    for message in received:
        got[message["chat_id"]].append(message["sequence"])
    for sequences in got.values():
        assert sequences == list(range(1, len(sequences) + 1)), "what was sent is contiguous"
    assert sync_from == {chat_id: len(sequences) for chat_id, sequences in got.items() if len(sequences) < each}

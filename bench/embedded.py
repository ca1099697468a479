"""The embedded engine beside bare RocksDB: the same rows, synced in the same groups, with nothing around them.

`python -m bench.embedded` prints a table, `--json` one JSON object. The disk decides: read the ratios.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.run import Figure
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.message import TEXT, Message
from seriatim.engines import store_rules
from seriatim.engines.embedded import rows
from seriatim.engines.embedded.catalog import EmbeddedCatalog
from seriatim.engines.embedded.disk import Disk
from seriatim.engines.embedded.event_log import EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.folder import Folder
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.rows import CounterRow, EventRow
from seriatim.engines.memory.system_clock import SystemClock
from seriatim.ports.event_log import MESSAGES, Event, Partition
from seriatim.ports.message_log import Allocation, Entry

SECONDS = 2.0  # each figure and each baseline
VALUE = b"e" * 400  # about one published message
Send = Callable[[str, int], Awaitable[None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    figures = [asyncio.run(figure(waiting, whole)) for whole in (False, True) for waiting in (1, 64, 512)]
    if as_json:
        found = [{**msgspec.structs.asdict(each), "ratio": round(each.ratio, 3)} for each in figures]
        json.dump({"figures": found}, sys.stdout, indent=2)
        print()
        return
    table = Table("what", "per second", "baseline", "per second", "ratio", title="one core, this disk, this moment")
    for each in figures:
        table.add_row(
            f"{each.name} ({each.unit})",
            f"{each.per_second:,.0f}",
            each.baseline,
            f"{each.baseline_per_second:,.0f}",
            f"{each.ratio:.2f}",
        )
    Console().print(table)


async def figure(waiting: int, whole: bool) -> Figure:
    """`whole`: allocate, persist and publish, each awaited, as a send does; else only the commit of the message."""
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as root:
        bare = bare_groups(Path(root) / "bare", waiting, whole)
        folder = Folder.open(Path(root) / "data")
        send = await senders(folder, waiting, whole)
        ours = await sent(send, waiting)
        await folder.close()
    return Figure(
        name="sends: allocate, persist, publish" if whole else "messages persisted",
        unit=f"{waiting} waiting",
        per_second=ours,
        baseline="the same rows in one synced group",
        baseline_per_second=bare,
    )


async def senders(folder: Folder, waiting: int, whole: bool) -> Send:
    log, clock = EmbeddedMessageLog(folder), SystemClock()
    events = EmbeddedEventWriter(await EmbeddedEventLog.open(folder, {MESSAGES: 64}), clock)
    catalog = EmbeddedCatalog(folder)
    await asyncio.gather(
        *(catalog.create_group(chat(f"chat_{each}"), [], now_ms=1, timeout_s=60) for each in range(waiting))
    )

    async def send(chat_id: str, sequence: int) -> None:
        if whole:
            slots = await log.allocate(
                chat_id, 1, published_through=sequence - 1, published_message=None, now_ms=sequence, timeout_s=60
            )
            assert isinstance(slots, Allocation), "somebody else allocates"
        refused = await log.persist(chat_id, [entry(chat_id, sequence)], ["ann"], token="t", now_s=1, timeout_s=60)
        assert refused is None, "the engine refused"
        if whole:
            await events.append(MESSAGES, [Event(key=chat_id, value=VALUE)], timeout_s=60)

    return send


async def sent(send: Send, waiting: int) -> float:
    until = time.perf_counter() + SECONDS
    count = 0

    async def one(number: int) -> None:
        nonlocal count
        sequence = 0
        while time.perf_counter() < until:
            sequence += 1
            await send(f"chat_{number}", sequence)
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(waiting)))
    return count / (time.perf_counter() - began)


def bare_groups(path: Path, waiting: int, whole: bool) -> float:
    disk = Disk(path, create=True)
    began, count, sequence = time.perf_counter(), 0, 0
    while time.perf_counter() - began < SECONDS:
        sequence += 1
        changes: dict[bytes, bytes | None] = {}
        for number in range(waiting):
            chat_id = f"chat_{number}"
            stored = entry(chat_id, sequence)
            key = rows.idempotency_key(rows.keys_prefix(chat_id), stored.message.client_message_id)
            changes[key] = rows.KEY.encode(store_rules.key_of(stored))
            changes[rows.slot_key(rows.slots_prefix(chat_id), sequence)] = rows.encode_slot(stored.message)
            if whole:
                counter = CounterRow(standing=store_rules.NEW_STANDING)
                partition = Partition(MESSAGES, number % 64)
                changes[rows.counter_key(chat_id)] = rows.COUNTER.encode(counter)
                changes[rows.event_key(partition, sequence * waiting + number)] = rows.EVENT.encode(
                    EventRow(b"chat", VALUE, (), 1)
                )
        disk.write(changes)
        disk.sync()
        count += waiting
    took = time.perf_counter() - began
    disk.close()
    return count / took


def entry(chat_id: str, sequence: int) -> Entry:
    message = Message(
        message_id=f"msg_{sequence:026d}",
        chat_id=chat_id,
        sequence=sequence,
        sender_id="ann",
        client_message_id=f"00000000-0000-4000-9000-{sequence:012x}",
        content="hello, world, how are you today? " * 3,
        content_type=TEXT,
        created_at="2026-01-30T14:30:00.000Z",
    )
    return Entry(message=message, content_sha256="0" * 64, expires_at_s=2**40)


def chat(chat_id: str) -> Chat:
    return Chat(
        chat_id=chat_id,
        chat_type=ChatType.GROUP,
        name=None,
        created_by="ann",
        created_at="",
        updated_at="",
        member_count=0,
    )


if __name__ == "__main__":
    main()

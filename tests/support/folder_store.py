"""The rows of a data folder, for stories: the part of `MemoryStore` that they use, on RocksDB; syncs in virtual time.

Rows are written past the writer, as a tool or an accident would: at once, between two of its decisions.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

from seriatim.domain.chat import Chat, Membership
from seriatim.domain.message import Message, Slot
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Changes, Disk
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.rows import CounterRow, WatermarkRow
from seriatim.engines.embedded.storage.writer import Writer, _Job
from seriatim.ports.message_log import ChatCounter, Key
from seriatim.simulation.loop import SimulatedLoop

Id = TypeVar("Id")
V = TypeVar("V")
SYNC_S = 0.002  # what a sync takes


class VirtualSyncs:
    """In place of the thread of a `Writer`: each job runs on the simulated loop, and takes SYNC_S.

    `held`: the next job begins, and never ends.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self.held = False
        self._loop = loop

    def serve(self, writer: Writer) -> None:
        """What the writer begins belongs to the world: a process that asked for it, and crashed, does not stop it."""
        writer._jobs.put(None)
        writer._thread.join()
        vars(writer)["_jobs"] = self
        for name in ("_begin_soon", "write_lazily", "_watch"):
            vars(writer)[name] = partial(self._in_the_world, getattr(writer, name))

    def _in_the_world(self, method: Callable[..., None], *args: object) -> None:
        self._loop.world.context.copy().run(method, *args)

    def put(self, order: tuple[object, _Job]) -> None:
        _, job = order
        if self.held:
            self.held = False
            return
        self._loop.call_later(SYNC_S, self._run, job, context=self._loop.world.context)

    def _run(self, job: _Job) -> None:
        error: Exception | None = None
        try:
            job.run()
        except Exception as failure:
            error = failure
        job.then(self._loop, error)


class FolderStore:
    """`overwritten` is called with the key of a slot that is written although another row is there."""

    def __init__(self, folder: Folder, overwritten: Callable[[bytes], None]) -> None:
        self.disk = folder.disk
        self.chats = Chats(self.disk, rows.chat_key, rows.CHAT.encode, rows.CHAT.decode)
        self.keys: RowsById[tuple[str, str], Key] = RowsById(
            self.disk,
            lambda each: rows.idempotency_key(rows.keys_prefix(each[0]), each[1]),
            rows.KEY.encode,
            rows.KEY.decode,
        )
        self.counters: RowsById[str, ChatCounter] = RowsById(
            self.disk,
            rows.counter_key,
            lambda counter: rows.COUNTER.encode(CounterRow(counter=counter)),
            lambda row: rows.COUNTER.decode(row).counter,
        )
        self.watermarks: RowsById[tuple[str, str], int] = RowsById(
            self.disk,
            lambda each: rows.watermark_key(*each),
            lambda sequence: rows.WATERMARK.encode(WatermarkRow(sequence, 0)),
            lambda row: rows.WATERMARK.decode(row).sequence,
        )
        vars(self.disk)["write"] = self._watched
        self._overwritten = overwritten

    def _watched(self, changes: Changes) -> None:
        for key, value in changes.items():
            if key.startswith(b"S") and self.disk.get(key) not in (None, value):
                self._overwritten(key)
        Disk.write(self.disk, changes)

    def fill(self, slot: Slot) -> None:
        key = rows.slot_key(rows.slots_prefix(slot.chat_id), slot.sequence)
        self.disk.write({key: rows.encode_slot(slot)})

    def slots(self, chat_id: str) -> "SlotRows":
        return SlotRows(self.disk, rows.slots_prefix(chat_id))

    def put_counter(self, chat_id: str, counter: ChatCounter) -> None:
        self.counters[chat_id] = counter

    def index_dirty(self, chat_id: str) -> None:
        dirty_at_ms = self.counters[chat_id].dirty_at_ms
        if dirty_at_ms is not None:
            self.disk.write({rows.dirty_key(dirty_at_ms, chat_id): b""})

    def lose_counter(self, chat_id: str) -> None:
        self.disk.write({rows.counter_key(chat_id): None})

    def put_watermark(self, user_id: str, chat_id: str, sequence: int) -> None:
        self.watermarks[user_id, chat_id] = sequence

    def members(self, chat_id: str) -> dict[str, Membership]:
        prefix = rows.members_prefix(chat_id)
        found = [rows.MEMBERSHIP.decode(row) for _, row in self.disk.scan(prefix, rows.after(prefix))]
        return {each.user_id: each for each in found}

    def put_member(self, row: Membership, version: int) -> None:
        """`version` is in the counter, which is written beside it."""
        member, index = rows.member_key(row.chat_id, row.user_id), rows.user_chat_key(row.user_id, row.chat_id)
        self.disk.write({member: rows.MEMBERSHIP.encode(row), index: b""})

    def drop_member(self, chat_id: str, user_id: str, version: int) -> None:
        self.disk.write({rows.member_key(chat_id, user_id): None, rows.user_chat_key(user_id, chat_id): None})


class SlotRows:
    """What one chat's slots hold."""

    def __init__(self, disk: Disk, prefix: bytes) -> None:
        self._disk = disk
        self._prefix = prefix

    def holder(self, sequence: int) -> Slot | None:
        row = self._disk.get(rows.slot_key(self._prefix, sequence))
        return None if row is None else rows.decode_slot(row)

    def newest(self, *, at_most: int | None = None, messages_only: bool) -> int:
        start = rows.after(self._prefix) if at_most is None else rows.slot_key(self._prefix, at_most)
        for key, row in self._disk.scan_down(start, self._prefix):
            if not messages_only or isinstance(rows.decode_slot(row), Message):
                return rows.last_number(key)
        return 0


class RowsById(Generic[Id, V]):
    """One table as a mapping."""

    def __init__(
        self, disk: Disk, key_of: Callable[[Id], bytes], encode: Callable[[V], bytes], decode: Callable[[bytes], V]
    ) -> None:
        self._disk, self._key_of, self._encode, self._decode = disk, key_of, encode, decode

    def get(self, row_id: Id, default: V) -> V:
        row = self._disk.get(self._key_of(row_id))
        return default if row is None else self._decode(row)

    def __getitem__(self, row_id: Id) -> V:
        row = self._disk.get(self._key_of(row_id))
        if row is None:
            raise KeyError(row_id)
        return self._decode(row)

    def __setitem__(self, row_id: Id, value: V) -> None:
        self._disk.write({self._key_of(row_id): self._encode(value)})


class Chats(RowsById[str, Chat]):
    def __iter__(self) -> Iterator[str]:
        prefix = rows.TABLES["chats"]
        return iter([rows.first_text(key) for key, _ in self._disk.scan(prefix, rows.after(prefix))])

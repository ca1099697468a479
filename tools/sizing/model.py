"""What a message costs: calls and units of DynamoDB, bytes of Kafka, commands of Redis.

Sizes are those of rows and events as our own codecs write them. Rounding is DynamoDB's: a write unit is one KB of one
row, a read unit 4 KB of it, a transaction counts twice, and reading what is not there costs the least that there is.
"""

import math
from collections.abc import Mapping

import msgspec

from seriatim.domain import events, ids, limits
from seriatim.domain.chat import Membership, Role
from seriatim.domain.message import TEXT, Message, content_digest
from seriatim.domain.times import iso
from seriatim.engines.dynamodb.rows import chats, messages
from seriatim.engines.redis.push_envelope import encode_envelope
from seriatim.ports.message_log import ChatCounter, Entry
from seriatim.ports.push import MessageDelivery

KB = 1024
READ_KB = 4
ROW_OVERHEAD_BYTES = 100  # what DynamoDB adds to each row that it stores
IN_TRANSACTION = 2

_NOW_MS = 1_800_000_000_000


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars. List prices change, and differ by region and contract: check your bill."""

    as_of: str = "November 2025"
    region: str = "us-east-1"
    write_units_million: float = 0.625
    read_units_million: float = 0.125
    stored_gb_month: float = 0.25
    log_gb_month: float = 0.10


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How people write. `batch`: messages of one chat that are committed together; `senders`: people among them.

    `quiet`: the chat falls idle after each batch, so that its mark is flushed and its row leaves the index.
    """

    batch: int = 1
    senders: int = 1
    quiet: bool = False
    content_bytes: int = 200
    members: int = 10
    online: int = 5
    gateways: int = 2
    sequence: int = 100_000


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of one message."""

    calls: float
    reads: float
    writes: float

    def dollars_per_million(self, prices: Prices) -> float:
        return self.reads * prices.read_units_million + self.writes * prices.write_units_million


def seriatim(load: Load) -> Cost:
    """One batch read, one update of the counter, one transaction; the flush of a chat that falls idle comes on top."""
    sizes = row_sizes(load)
    reads = load.batch + load.senders * reads_of(sizes["chat_memberships"]) + reads_of(sizes["chat_counters"])
    stored = writes_of(sizes["messages"]) + writes_of(sizes["idempotency_keys"])
    checked = writes_of(sizes["chat_memberships"])
    writes = counter_writes(load) + IN_TRANSACTION * (load.batch * stored + load.senders * checked)
    calls = 4 if load.quiet else 3
    return Cost(calls=calls / load.batch, reads=reads / load.batch, writes=writes / load.batch)


def counter_writes(load: Load) -> int:
    """The row, and its place in the index of dirty chats: one to enter or to leave, two to move within it."""
    row = writes_of(row_sizes(load)["chat_counters"])
    return (row + 1) + (row + 1) if load.quiet else row + 2


def adr_004(load: Load) -> Cost:
    """Appendix A: key (eventual), membership, counter, transaction; each message by itself. Its rows up to 1 KB."""
    message = writes_of(row_sizes(load)["messages"])
    return Cost(calls=4, reads=0.5 + 1, writes=1 + IN_TRANSACTION * (message + 1))


def acknowledgement() -> Cost:
    """A device says how far it has come: the end of the chat, the membership, the watermark."""
    return Cost(calls=3, reads=2, writes=1)


def new_chats(chats: int) -> Cost:
    """Which chats a user has joined lately: all memberships of the user in one query of an index, a little old."""
    list_bytes = chats * row_sizes(Load())["chat_memberships"]
    return Cost(calls=1, reads=reads_of(list_bytes) / 2, writes=0)


def refill(load: Load) -> Cost:
    """Fanout has no fresh list of a chat's members: the counter, and all memberships in one query."""
    list_bytes = load.members * row_sizes(load)["chat_memberships"]
    return Cost(calls=2, reads=1 + reads_of(list_bytes), writes=0)


def sweeps_per_month() -> Cost:
    """Of one ingest process, whatever is sent: the reconciler looks into each part of its index."""
    sweeps = 30 * 86_400 / limits.RECONCILE_EVERY_S
    queries = sweeps * limits.DIRTY_BUCKETS
    return Cost(calls=queries, reads=queries * 0.5, writes=0)


def stored_bytes(load: Load) -> int:
    """Of one message, for ever."""
    return row_sizes(load)["messages"] + ROW_OVERHEAD_BYTES


def key_bytes(load: Load) -> int:
    """Of one message, for a week."""
    return row_sizes(load)["idempotency_keys"] + ROW_OVERHEAD_BYTES


def event_bytes(load: Load) -> int:
    """A record's key, value and headers, once and before compression."""
    message = sample(load)
    event = events.message_persisted(
        message,
        prev_sequence=message.sequence - 1,
        members_version=load.members,
        origin_connection_id=ids.CONNECTION + _ulid(6),
        producer_id="ingest-" + _ulid(7),
        trace_id=_ulid(8),
        event_time=iso(_NOW_MS),
    )
    value, headers = events.encode_message(event), events.headers(events.MessagePersisted, _ulid(8))
    return len(message.chat_id) + len(value) + sum(len(name) + len(value) for name, value in headers)


def redis_commands(load: Load) -> Mapping[str, int]:
    """Of fanout, for one message whose members are cached."""
    return {"EVAL (members)": 1, "SMEMBERS": load.members, "GET": load.online, "PUBLISH": load.gateways}


def envelope_bytes(load: Load) -> int:
    """To one gateway."""
    there = max(1, load.online // load.gateways)
    connections = tuple(ids.CONNECTION + _ulid(number) for number in range(there))
    return len(encode_envelope(MessageDelivery(connection_ids=connections, message=sample(load), prev_sequence=1)))


# --- sizes ------------------------------------------------------------------------------------------------------------


def row_sizes(load: Load) -> Mapping[str, int]:
    """Bytes by table, of the rows that a send reads or writes."""
    message = sample(load)
    entry = Entry(message=message, content_sha256=content_digest(message.content), expires_at_s=_NOW_MS // 1000)
    counter = ChatCounter(
        allocated=message.sequence,
        published_through=message.sequence - 1,
        published_message=message.sequence - 1,
        members_version=load.members,
        dirty_at_ms=_NOW_MS,
    )
    user_ids = [ids.USER + _ulid(number) for number in range(load.members)]
    member = Membership(
        chat_id=message.chat_id,
        user_id=message.sender_id,
        role=Role.MEMBER,
        joined_at=iso(_NOW_MS),
        added_by=message.sender_id,
    )
    return {
        "messages": row_bytes(messages.message_item(message)),
        "idempotency_keys": row_bytes(messages.key_item(entry)),
        "chat_counters": row_bytes(messages.counter_item(message.chat_id, counter, user_ids, _NOW_MS)),
        "chat_memberships": row_bytes(chats.membership_item(member)),
    }


def row_bytes(item: msgspec.Struct) -> int:
    """Names and values, as DynamoDB counts them."""
    attributes = msgspec.to_builtins(item)
    return sum(len(name.encode()) + _value_bytes(kind) for name, kind in attributes.items())


def writes_of(size_bytes: int) -> int:
    return max(1, math.ceil(size_bytes / KB))


def reads_of(size_bytes: int) -> int:
    """As of now; what may be a little old costs half."""
    return max(1, math.ceil(size_bytes / (READ_KB * KB)))


def sample(load: Load) -> Message:
    """With ids as we make them. What it says is not what anybody wrote."""
    return Message(
        message_id=ids.MESSAGE + _ulid(1),
        chat_id=ids.CHAT + _ulid(2),
        sequence=load.sequence,
        sender_id=ids.USER + _ulid(3),
        client_message_id="00000000-0000-4000-8000-000000000000",
        content="x" * load.content_bytes,
        content_type=TEXT,
        created_at=iso(_NOW_MS),
    )


def _value_bytes(attribute: Mapping[str, object]) -> int:
    [(kind, value)] = attribute.items()
    if kind == "S":
        return len(str(value).encode())
    if kind == "N":  # two digits in a byte, zeros at either end for nothing, and one byte more
        return math.ceil(len(str(value).strip("0-")) / 2) + 1
    return 1


def _ulid(number: int) -> str:
    return ids.ulid(_NOW_MS, number)

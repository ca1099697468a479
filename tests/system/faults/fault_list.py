"""Every fault that is tried on the real thing: what users see of it and what is kept, in words.

The tests take their rows from here, and `make faults` writes them with what was measured into docs/faults.md.
"""

from collections.abc import Iterator, Mapping

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """`name` is the row's key: the same in the tests, in the report and in the table."""

    name: str
    users: str
    kept: str


def all_faults() -> Iterator[Fault]:
    """In the order of the table."""
    for table in (ENGINE_KILLED, ENGINE_PAUSED, ENGINE_RESTARTED):
        yield from table.values()
    yield FLUSHED
    for table in (KILLED, PAUSED, RESTARTED, CONCURRENT, CUT, SLOW):
        yield from table.values()


_ALL = "everything that was acknowledged"
_UNSURE = (
    "everything that was acknowledged; a refused message is stored once or not at all, its repetition is recognised"
)
_NOT_REDIS = (
    "everything: registrations are written again, counters of rate limits begin again, "
    "revocations are read from DynamoDB"
)
_NOTHING_THERE = "everything: it keeps nothing of its own"


def _named(subject: str, how: str, **rows: tuple[str, str]) -> Mapping[str, Fault]:
    return {who: Fault(f"{subject}{_NAMES.get(who, who)} {how}", users, kept) for who, (users, kept) in rows.items()}


_NAMES = {
    "all_dynamodb": "all roles and DynamoDB",
    "all_kafka": "all roles and Kafka",
    "all_redis": "all roles and Redis",
    "gateway_ingest": "one gateway and both ingests",
    "client_gateway": "clients and one gateway",
}

# --- engines ----------------------------------------------------------------------------------------------------------

ENGINE_KILLED = _named(
    "",
    "is killed (`kill -9`) and started again",
    DynamoDB=(
        "sends, syncs and REST are refused at once; after five failed calls an ingest's breaker refuses for 30 s more",
        _UNSURE,
    ),
    Kafka=(
        "sends wait up to 5 s, then are refused; after five failed calls an ingest's breaker refuses for 30 s more",
        _UNSURE + "; what was stored and not yet published is published by the reconciler",
    ),
    Redis=("no error: new messages come when it is back, and new connections wait", _NOT_REDIS),
)
ENGINE_PAUSED = _named(
    "",
    "hangs for 6 s (SIGSTOP)",
    DynamoDB=("sends and REST wait for their timeouts, then are refused; the breaker opens as after a kill", _UNSURE),
    Kafka=(
        "sends wait up to 5 s, then are refused; five failed calls would open the breaker, as after a kill",
        _UNSURE,
    ),
    Redis=("no error: new messages come when it wakes, REST asks without its limits", _ALL),
)
ENGINE_RESTARTED = _named(
    "",
    "is restarted in order",
    DynamoDB=("as after a kill", _UNSURE),
    Kafka=("sends wait until it is back; as after a kill if that takes long", _UNSURE),
    Redis=("as after a kill: it comes back empty", _NOT_REDIS),
)
FLUSHED = Fault(
    "Redis forgets everything (`FLUSHALL`) while all connections stay open",
    "no error; users who only read see new messages late, until the gateway registers all connections again "
    "(every 24 to 30 s)",
    _NOT_REDIS,
)

# --- roles ------------------------------------------------------------------------------------------------------------

KILLED = _named(
    "one ",
    "is killed (`kill -9`)",
    gateway=("its clients lose their connection, connect to the other one, sync, and repeat what is open", _UNSURE),
    ingest=("sends under way there are refused at once; the repetition goes to the other one", _UNSURE),
    fanout=(
        (
            "users who only read see new messages of its partitions when Kafka has missed it for 30 s; "
            "users who write, at once"
        ),
        _NOTHING_THERE,
    ),
    api=("REST does not answer there until it is started again; the other one does, and chats go on", _ALL),
)
PAUSED = _named(
    "one ",
    "hangs (SIGSTOP)",
    gateway=("after 10 s without an answer its clients connect to the other one", _UNSURE),
    ingest=(
        "sends of its chats are refused after 3 s of silence; the repetition goes to the other one",
        _UNSURE + "; drafts that it finds when it wakes are too late, and are not stored",
    ),
    fanout=("new messages of its partitions come when it wakes, for users who only read", _NOTHING_THERE),
    api=("REST answers there when it wakes; the other one does meanwhile, and chats go on", _ALL),
)
RESTARTED = _named(
    "one ",
    "is restarted (SIGTERM)",
    gateway=("its clients get `server_shutdown` and connect elsewhere", _ALL),
    ingest=("nothing: its chats move to the other one, in order", _ALL),
    fanout=("nothing, or a short delay while its partitions move", _NOTHING_THERE),
    api=("requests under way are answered, new ones by the other one; chats go on", _ALL),
)

# Beside the load: 40 writers in one chat of the ingest that breaks, and one at each gateway in a chat of the other.
CONCURRENT = {
    "killed": Fault(
        "one ingest is killed (`kill -9`) with 40 sends under way",
        "those 40 are refused at once, nothing else is: the chats of the other one go on, and its own move there",
        _UNSURE,
    ),
    "still": Fault(
        "one ingest hangs for 8 s (SIGSTOP) under 40 writers",
        "sends of its chats are refused after 3 s of silence, then go to the other one, whose chats notice nothing",
        _UNSURE,
    ),
    "reset": Fault(
        "the connection of one call to DynamoDB is reset under 40 writers",
        "nothing: a read without an answer is retried once",
        _ALL,
    ),
}

# --- lines ------------------------------------------------------------------------------------------------------------

CUT = _named(
    "the line between ",
    "is cut for 2 s",
    all_dynamodb=("as if DynamoDB was killed", _UNSURE),
    all_kafka=("sends wait until it is repaired", _ALL),
    all_redis=("no error: new messages come when it is repaired", _ALL),
    gateway_ingest=("what was under way is refused, the next sends wait until it is repaired", _UNSURE),
    client_gateway=("clients connect by another gateway, sync, and repeat what is open", _UNSURE),
)
SLOW = _named(
    "the line between ",
    "is slow (200 ms each way)",
    all_dynamodb=("each message waits for two to four answers of the store: about 2 s under load", _ALL),
    all_kafka=("acks and new messages come half a second later", _ALL),
    all_redis=("acks as ever, new messages some tenths of a second later", _ALL),
    gateway_ingest=("acks at this gateway come 0.4 s later", _ALL),
    client_gateway=("everything at this gateway comes 0.2 s later", _ALL),
)

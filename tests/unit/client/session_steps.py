"""Brings a client session into a state in one line, and reads the actions it returns. Frames in, actions out."""

from seriatim.client.actions import Action, Deliver, Transmit
from seriatim.client.session import ClientSession, ClientState
from seriatim.client.store import ClientStore, MemoryClientStore
from seriatim.domain.message import Message
from seriatim.protocol.frames import (
    Ack,
    ClientFrame,
    ConnectionEstablished,
    ErrorFrame,
    MessageAck,
    MessageBatch,
    MessageFrame,
    MessageItem,
    SendMessage,
    SyncRequest,
    message_frame,
    message_item,
)

ME, YOU, CHAT = "user_me", "user_you", "chat_1"
NOON = "2026-01-30T12:00:00.000Z"
DAY_S = 86_400.0


def uuid(number: int) -> str:
    return f"550e8400-e29b-41d4-a716-{number:012d}"


def message(sequence: int, *, sender: str = YOU, chat: str = CHAT, key: int | None = None) -> Message:
    return Message(
        message_id=f"msg_{chat}_{sequence}",
        chat_id=chat,
        sequence=sequence,
        sender_id=sender,
        client_message_id=uuid(key if key is not None else 900_000 + sequence),
        content=f"text {sequence}",
        content_type="text/plain",
        created_at=NOON,
    )


def push(
    sequence: int, prev: int | None, *, sender: str = YOU, chat: str = CHAT, key: int | None = None
) -> MessageFrame:
    return message_frame(message(sequence, sender=sender, chat=chat, key=key), prev)


def item(sequence: int, *, sender: str = YOU, chat: str = CHAT, key: int | None = None) -> MessageItem:
    return message_item(message(sequence, sender=sender, chat=chat, key=key), None)


def batch(request: SyncRequest, *items: MessageItem, next_sequence: int | None = None) -> MessageBatch:
    return MessageBatch(
        chat_id=request.chat_id,
        messages=items,
        has_more=next_sequence is not None,
        next_sequence=next_sequence,
        request_id=request.request_id,
    )


def own_ack(key: int, sequence: int, *, chat: str = CHAT, differs: bool = False) -> MessageAck:
    ack = MessageAck(
        client_message_id=uuid(key),
        chat_id=chat,
        message_id=f"msg_{chat}_{sequence}",
        sequence=sequence,
        created_at=NOON,
        deduplicated=differs,
    )
    if not differs:
        return ack
    return MessageAck(
        client_message_id=ack.client_message_id,
        chat_id=chat,
        message_id=ack.message_id,
        sequence=sequence,
        created_at=NOON,
        deduplicated=True,
        content_differs=True,
    )


def error(code: str, *, retryable: bool, key: int | None = None, **fields: object) -> ErrorFrame:
    known: dict[str, object] = {"code": code, "message": "no", "retryable": retryable, "chat_id": CHAT, **fields}
    if key is not None:
        known["client_message_id"] = uuid(key)
    return ErrorFrame(**known)  # type: ignore[arg-type]


GREETING = ConnectionEstablished(
    connection_id="conn_1", user_id=ME, device_id="device", server_time=NOON, gateway_id="gw-1"
)


def frames(actions: list[Action]) -> list[ClientFrame]:
    return [action.frame for action in actions if isinstance(action, Transmit)]


def syncs(actions: list[Action]) -> list[SyncRequest]:
    return [frame for frame in frames(actions) if isinstance(frame, SyncRequest)]


def sends(actions: list[Action]) -> list[str]:
    return [frame.client_message_id for frame in frames(actions) if isinstance(frame, SendMessage)]


def acks(actions: list[Action]) -> list[tuple[str, int]]:
    return [(frame.chat_id, frame.last_acked_sequence) for frame in frames(actions) if isinstance(frame, Ack)]


def delivered(actions: list[Action]) -> list[int]:
    return [action.message.sequence for action in actions if isinstance(action, Deliver)]


def session_over(store: ClientStore, chance: float = 0.5) -> ClientSession:
    return ClientSession(store, lambda: chance)


def greet(session: ClientSession, now: float = 0.0) -> list[Action]:
    if session.state is ClientState.DISCONNECTED:
        session.start(now)
    session.connected(now)
    return session.received(GREETING, now)


def ready(store: ClientStore, *chats: str, now: float = 0.0) -> ClientSession:
    """READY with every chat synced and nothing new in it."""
    session = session_over(store)
    make_ready(session, *chats, now=now)
    return session


def make_ready(session: ClientSession, *chats: str, now: float) -> list[Action]:
    greet(session, now)
    seen = session.chats_listed(list(chats or [CHAT]), now)
    pending = syncs(seen)
    while pending:
        more = session.received(batch(pending.pop(0)), now)
        pending += syncs(more)
        seen += more
    assert session.state is ClientState.READY
    return seen


def at_cursor(cursor: int) -> MemoryClientStore:
    store = MemoryClientStore()
    for sequence in range(1, cursor + 1):
        store.put_message(message(sequence))
    store.advance_cursor(CHAT, cursor)
    return store

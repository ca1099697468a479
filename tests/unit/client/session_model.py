"""A client session against a tiny server, one small step at a time, with the promise checked after each.

The server keeps the promises of the wire, and uses every freedom they leave. The device loses power between any two
writes of its store; what it had written is all that the next session gets.
"""

from hypothesis import strategies as st

from seriatim.client.actions import Action, Connect, Deliver, Disconnect, Failed, ListChats, Sent, Transmit
from seriatim.client.session import ClientSession, ClientState
from seriatim.domain.message import Message
from seriatim.protocol.frames import (
    Ack,
    ClientFrame,
    ConnectionEstablished,
    ErrorFrame,
    MessageAck,
    MessageBatch,
    MessageFrame,
    SendMessage,
    ServerFrame,
    SyncRequest,
    message_frame,
    message_item,
)
from tests.unit.client.crashing_store import PowerLost, StoppingStore

ME, YOU = "user_me", "user_you"
CHATS = ["chat_a", "chat_b"]
PAGE_SLOTS = 3


class ModelServer:
    """One gateway and its store. `lossy`: pushes get lost, but every push names its predecessor.

    Otherwise predecessors are sometimes unknown, and only a chat that is not synced loses pushes.
    """

    def __init__(self, *, lossy: bool) -> None:
        self.lossy = lossy
        self.messages: dict[str, list[Message]] = {chat: [] for chat in CHATS}
        self.slots = dict.fromkeys(CHATS, 0)
        self.acked: list[tuple[str, int]] = []
        self.forget_connection()

    def forget_connection(self) -> None:
        self.inbound: list[ClientFrame] = []
        self.answers: list[ServerFrame] = []  # overtake pushes
        self.pushes: list[ServerFrame] = []
        self.live: dict[str, None] = {}
        self.listening = False

    def store(self, chat: str, sender: str, key: str, content: str, *, holes: int) -> Message:
        self.slots[chat] += 1 + holes
        message = Message(
            message_id=f"msg_{chat}_{self.slots[chat]}",
            chat_id=chat,
            sequence=self.slots[chat],
            sender_id=sender,
            client_message_id=key,
            content=content,
            content_type="text/plain",
            created_at="2026-01-30T12:00:00.000Z",
        )
        self.messages[chat].append(message)
        return message

    def push(self, message: Message, *, lose: bool, name_previous: bool) -> None:
        may_lose = self.lossy or message.chat_id not in self.live
        if not self.listening or (lose and may_lose):
            return
        earlier = [known.sequence for known in self.messages[message.chat_id] if known.sequence < message.sequence]
        previous = max(earlier, default=0) if name_previous or self.lossy else None
        self.pushes.append(message_frame(message, previous))

    def refuse_next(self) -> None:
        """For good: the user is no member at this moment. What was stored before is acknowledged all the same."""
        frame = self.inbound[0]
        if not isinstance(frame, SendMessage) or frame.client_message_id in self.keys(frame.chat_id):
            self.answer_next(fail=False, holes=0)
            return
        del self.inbound[0]
        self.answers.append(
            ErrorFrame(
                code="NOT_A_MEMBER",
                message="no",
                retryable=False,
                client_message_id=frame.client_message_id,
                chat_id=frame.chat_id,
            )
        )

    def keys(self, chat: str) -> list[str]:
        return [message.client_message_id for message in self.messages[chat] if message.sender_id == ME]

    def answer_next(self, *, fail: bool, holes: int) -> None:
        frame = self.inbound.pop(0)
        match frame:
            case SendMessage():
                self._answer_send(frame, fail, holes)
            case SyncRequest():
                self._answer_sync(frame, fail)
            case Ack():
                self.acked.append((frame.chat_id, frame.last_acked_sequence))

    def _answer_send(self, frame: SendMessage, fail: bool, holes: int) -> None:
        known = [m for m in self.messages[frame.chat_id] if m.client_message_id == frame.client_message_id]
        # A failure leaves the message stored every other time: an error does not prove that nothing was.
        if known or not (fail and holes % 2):
            message = (
                known[0]
                if known
                else self.store(frame.chat_id, ME, frame.client_message_id, frame.content, holes=holes)
            )
        else:
            message = None
        if fail or message is None:
            self.answers.append(
                ErrorFrame(
                    code="SERVICE_UNAVAILABLE",
                    message="later",
                    retryable=True,
                    client_message_id=frame.client_message_id,
                    chat_id=frame.chat_id,
                )
            )
            if message is not None and not known:
                self.push(message, lose=False, name_previous=True)  # not acked here, so the gateway shows it
            return
        self.answers.append(
            MessageAck(
                client_message_id=frame.client_message_id,
                chat_id=frame.chat_id,
                message_id=message.message_id,
                sequence=message.sequence,
                created_at=message.created_at,
                deduplicated=bool(known),
            )
        )

    def _answer_sync(self, frame: SyncRequest, fail: bool) -> None:
        chat, after = frame.chat_id, frame.last_acked_sequence
        if fail:
            self.answers.append(
                ErrorFrame(
                    code="SERVER_BUSY", message="later", retryable=True, chat_id=chat, request_id=frame.request_id
                )
            )
            return
        end = after + PAGE_SLOTS
        found = [message for message in self.messages[chat] if after < message.sequence <= end]
        more = any(message.sequence > end for message in self.messages[chat])
        if not more:
            self.live[chat] = None
        self.answers.append(
            MessageBatch(
                chat_id=chat,
                messages=tuple(message_item(message, None) for message in found),
                has_more=more,
                next_sequence=end + 1 if more else None,
                request_id=frame.request_id,
            )
        )


class SessionModel:
    """Drives a session against the server, one small step at a time, and checks the promise after each."""

    def __init__(self, *, lossy: bool, stops: list[int] | None = None) -> None:
        self.server = ModelServer(lossy=lossy)
        self.store = StoppingStore(stops or [])
        self.session = ClientSession(self.store, lambda: 0.5)
        self.now = 0.0
        self.delivered: dict[str, list[Message]] = {chat: [] for chat in CHATS}
        self.sent: dict[str, list[str]] = {chat: [] for chat in CHATS}
        self.settled: list[str] = []
        self.refusals = 0
        self.discarded: list[str] = []
        self.connecting = self.listing = False
        self.perform(self.session.start(self.now))

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Connect():
                    self.connecting = True
                case Disconnect():
                    self.disconnect()
                case Transmit():
                    self.transmit(action.frame)
                case ListChats():
                    self.listing = True
                case Deliver():
                    self.delivered[action.message.chat_id].append(action.message)
                case Sent():
                    self.settled.append(action.client_message_id)
                case Failed():
                    self.refusals += 1
                case _:
                    pass
        self.check()

    def transmit(self, frame: ClientFrame) -> None:
        if isinstance(frame, Ack):
            assert frame.last_acked_sequence <= self.store.cursor(frame.chat_id)
        self.server.inbound.append(frame)

    def check(self) -> None:
        for chat in CHATS:
            cursor = self.store.cursor(chat)
            truth = [message for message in self.server.messages[chat] if message.sequence <= cursor]
            assert [m for m in self.store.messages(chat) if m.sequence <= cursor] == truth
            assert self.delivered[chat] == truth, "each once, in order, and nothing left out"
            waiting = [entry.client_message_id for entry in self.store.outbox() if entry.chat_id == chat]
            kept = [*waiting, *self.server.keys(chat), *self.discarded]
            assert [key for key in self.sent[chat] if key not in kept] == [], "written by the user, and gone"

    # --- steps --------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        if self.connecting:
            self.connecting = False
            self.server.forget_connection()
            self.server.listening = True
            self.perform(self.session.connected(self.now))
            greeting = ConnectionEstablished(
                connection_id="conn", user_id=ME, device_id="device", server_time="", gateway_id="gw"
            )
            self.perform(self.session.received(greeting, self.now))

    def list_chats(self) -> None:
        if self.listing:
            self.listing = False
            self.perform(self.session.chats_listed(CHATS, self.now))

    def disconnect(self) -> None:
        self.connecting = self.listing = False
        self.server.forget_connection()
        self.perform(self.session.disconnected(self.now))

    def crash(self) -> None:
        """The application reads what is stored up to the cursor, and is handed what comes after it."""
        self.connecting = self.listing = False
        self.server.forget_connection()
        for chat in CHATS:
            stored = [message for message in self.store.messages(chat) if message.sequence <= self.store.cursor(chat)]
            assert stored[: len(self.delivered[chat])] == self.delivered[chat], "handed out, and not stored"
            self.delivered[chat] = stored
        self.session = ClientSession(self.store, lambda: 0.5)
        self.perform(self.session.start(self.now))

    def receive(self, lane: list[ServerFrame]) -> None:
        if lane and self.session.state is not ClientState.CONNECTING:
            self.perform(self.session.received(lane.pop(0), self.now))

    def hear_push(self) -> None:
        """A gateway sends a push that names no predecessor after all below it, the acks of own messages included."""
        pushes, answers = self.server.pushes, self.server.answers
        while pushes and any(_acks_below(answer, pushes[0]) for answer in answers):
            self.receive(answers)
        self.receive(pushes)

    def send(self, chat: str) -> None:
        number = sum(map(len, self.sent.values()))
        key = f"550e8400-e29b-41d4-a716-{number:012d}"
        actions = self.session.send(chat, key, f"mine {number}", self.now)
        self.sent[chat].append(key)  # from here on the user relies on it
        self.perform(actions)

    def decide(self, *, discard: bool) -> None:
        """The user answers the oldest refusal."""
        for entry in [entry for entry in self.store.outbox() if entry.failed_code is not None][:1]:
            if discard:
                actions = self.session.discard(entry.chat_id, entry.client_message_id, self.now)
                self.discarded.append(entry.client_message_id)
                self.perform(actions)
            else:
                self.perform(self.session.resend(entry.chat_id, entry.client_message_id, self.now))

    def tick(self) -> None:
        at = self.session.next_timer()
        if at is not None:
            self.now = max(self.now, at)
            self.perform(self.session.timer(self.now))

    def settle(self) -> None:
        """No more faults: everything runs until nothing is left to do, and two periodic syncs have passed."""
        quiet_from = self.now
        while self.now < quiet_from + 700:
            self.decide(discard=False)
            while self.connecting or self.listing or self.server.inbound or self.server.answers or self.server.pushes:
                self.connect()
                self.list_chats()
                if self.server.inbound:
                    self.server.answer_next(fail=False, holes=0)
                self.receive(self.server.answers or self.server.pushes)
            self.tick()


def _acks_below(answer: ServerFrame, push: ServerFrame) -> bool:
    return (
        isinstance(answer, MessageAck)
        and isinstance(push, MessageFrame)
        and push.prev_sequence is None
        and push.chat_id == answer.chat_id
        and push.sequence > answer.sequence
    )


STEPS = st.one_of(
    st.tuples(st.just("post"), st.sampled_from(CHATS), st.integers(0, 2), st.booleans(), st.booleans()),
    st.tuples(st.just("send"), st.sampled_from(CHATS)),
    st.tuples(st.just("answer"), st.sampled_from([False, False, False, True]), st.integers(0, 2)),
    st.tuples(st.just("answer"), st.just(False), st.just(0)),
    st.sampled_from(
        [("connect",), ("list",), ("hear_answer",), ("hear_push",), ("tick",), ("disconnect",), ("crash",)]
    ),
    st.sampled_from([("hear_answer",), ("hear_push",), ("list",), ("connect",)]),
    st.sampled_from([("refuse",), ("discard",), ("resend",)]),
    st.tuples(st.sampled_from(["send and hear", "send and give up", "send twice and give up"]), st.sampled_from(CHATS)),
)
# Several steps at once, for what chance alone would seldom put together.
SCRIPTS: dict[str, list[tuple[object, ...]]] = {
    "send and hear": [("answer", False, 0), ("hear_answer",)],
    "send and give up": [("refuse",), ("hear_answer",), ("discard",)],
    "send twice and give up": [*[("tick",)] * 4, ("refuse",), ("hear_answer",), ("discard",)],
}
READY_STEPS: list[tuple[object, ...]] = [
    ("connect",),
    ("list",),
    *[("answer", False, 0), ("hear_answer",)] * len(CHATS),
]


def run(model: SessionModel, step: tuple[object, ...]) -> None:
    """One step. If the device loses power in it, the rest of the step does not happen."""
    try:
        _run(model, step)
    except PowerLost:
        model.crash()


def _run(model: SessionModel, step: tuple[object, ...]) -> None:
    match step:
        case ("post", str(chat), int(holes), bool(lose), bool(name_previous)):
            number = model.server.slots[chat]
            message = model.server.store(chat, YOU, f"yours-{chat}-{number}", f"yours {number}", holes=holes)
            model.server.push(message, lose=lose, name_previous=name_previous)
            model.check()
        case ("send", str(chat)):
            model.send(chat)
        case ("answer", bool(fail), int(holes)) if model.server.inbound:
            model.server.answer_next(fail=fail, holes=holes)
        case ("refuse",) if model.server.inbound:
            model.server.refuse_next()
        case ("resend",):
            model.decide(discard=False)
        case ("discard",):
            model.decide(discard=True)
        case ("connect",):
            model.connect()
        case ("list",):
            model.list_chats()
        case ("hear_answer",):
            model.receive(model.server.answers)
        case ("hear_push",):
            model.hear_push()
        case ("tick",):
            model.tick()
        case ("disconnect",):
            model.disconnect()
        case ("crash",):
            model.crash()
        case (str(script), str(chat)):
            model.send(chat)
            for each in SCRIPTS[script]:
                _run(model, each)


def finish(model: SessionModel) -> None:
    """No more faults: in the end everything is everywhere, once, and nothing waits."""
    settled = False
    while not settled:
        try:
            model.settle()
            settled = True
        except PowerLost:
            model.crash()
    assert model.session.state is ClientState.READY
    assert model.store.outbox() == []
    for chat in CHATS:
        assert model.delivered[chat] == model.server.messages[chat]
        mine = model.server.keys(chat)
        assert len(mine) == len(dict.fromkeys(mine)), "a send was stored twice"
        if not model.refusals:
            assert mine == model.sent[chat], "every send once, in the order of sending"
    assert len(model.settled) == len(dict.fromkeys(model.settled)), "reported as sent twice"
    newest = {chat: model.store.cursor(chat) for chat in CHATS if model.server.messages[chat]}
    assert dict(sorted(model.server.acked)) == newest, "the last ack of each chat is its cursor"

"""What a client session asks its driver to do. The driver performs actions in the order of the list.

Connect, Disconnect, Transmit and ListChats use the network; the others are reports to the application.
"""

import msgspec

from seriatim.domain.message import Message
from seriatim.protocol.frames import ClientFrame


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    """Open a socket; answer with `connected` or, whatever went wrong, with `disconnected`."""


class Disconnect(msgspec.Struct, frozen=True, kw_only=True):
    """Close the socket, or give up the attempt; answer with `disconnected`."""

    code: int = 1000


class Transmit(msgspec.Struct, frozen=True, kw_only=True):
    frame: ClientFrame


class ListChats(msgspec.Struct, frozen=True, kw_only=True):
    """Ask over REST which chats the user is in; answer with `chats_listed` or `listing_failed`."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Every chat has caught up; from here on messages arrive as they happen."""


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """The next message of its chat: each exactly once, ascending, own ones included, nothing missing in between."""

    message: Message


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The server holds the message at this place. It is delivered too, once everything before it is known."""

    chat_id: str
    client_message_id: str
    sequence: int


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The server refused the message for good. It is kept: `resend` sends it again, `discard` removes it."""

    chat_id: str
    client_message_id: str
    code: str


class ConsentNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """The entry is about as old as KEY_LIFETIME_S: sending it may repeat it. Call `resend` or `discard`."""

    chat_id: str
    client_message_id: str


class ChatLeft(msgspec.Struct, frozen=True, kw_only=True):
    """The server no longer shows this chat to the user. What is stored stays."""

    chat_id: str
    code: str


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """No connection, and none will be tried until `start`. Show the user the reason."""

    reason: str


Action = (
    Connect | Disconnect | Transmit | ListChats | Ready | Deliver | Sent | Failed | ConsentNeeded | ChatLeft | Stopped
)

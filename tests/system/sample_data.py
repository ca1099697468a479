"""Sample data for REST: users, chats, messages and sessions that exist, some of them not the caller's business.

Random requests alone would only ever meet "not found". Here what is random chooses among ids that mean something.
"""

from itertools import count
from typing import Any

from tests.system.server_process import ServerProcess
from tests.system.users import User, request

MESSAGES = 7  # of the group; few, so that small sequences are sometimes beyond the end
UNKNOWN_USER, UNKNOWN_CHAT = "user_01KG6VZ9A1B2C3D4E5F6G7H8J9", "chat_01KG6W2P9XW3Y8T5H4C7R0ZQVB"
UNKNOWN_MESSAGE, UNKNOWN_SESSION = "msg_01KG6W5T7K8M9N0P1Q2R3S4T5V", "sess_01KG6W0A1B2C3D4E5F6G7H8J9K"


class SampleData:
    """Alice owns the group and Bob is in it. They also have a direct chat. Carol and Dave have a group of their own.

    Erin only signs in, again and again: that ends her older sessions.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._numbers = count(1)
        self.alice, self.bob, self.carol, self.dave, self.erin = (self.newcomer() for _ in range(5))
        self.group = self.alice.create_group(self.bob, name="us")
        self.others = self.carol.create_group(self.dave, name="them")
        direct = {"type": "direct", "member_ids": [self.bob.user_id]}
        self.direct: str = self.alice.call("POST", "/chats", direct).data["chat_id"]
        self.message_ids = [_say(self.alice, self.group, f"number {each}") for each in range(MESSAGES)]
        self.foreign_message = _say(self.carol, self.others, "not for you")

    def newcomer(self) -> User:
        return User(self.server, self.free_number())

    def free_number(self) -> str:
        return f"+49301{next(self._numbers):07}"

    def request_code(self, phone_number: str) -> None:
        """Afterwards the code is 000000."""
        request(self.server, "POST", "/api/v1/auth/request-otp", {"phone_number": phone_number})

    def session_of(self, user: User) -> str:
        [session_id] = [each["session_id"] for each in user.call("GET", "/sessions").data if each["is_current"]]
        assert isinstance(session_id, str)
        return session_id

    def new_group(self) -> str:
        """Like the group, for those who change the members."""
        return self.alice.create_group(self.bob)

    def cursor(self, path: str) -> str | None:
        """Alice's, for what follows the first item of her list. None where there is nothing to follow."""
        found: Any = self.alice.call("GET", f"{path.removeprefix('/api/v1')}?limit=1").json
        cursor = found.get("pagination", {}).get("next_cursor")
        assert cursor is None or isinstance(cursor, str)
        return cursor


def _say(who: User, chat_id: str, content: str) -> str:
    with who.connect() as websocket:
        message_id = websocket.send(chat_id, content)["message_id"]
    assert isinstance(message_id, str)
    return message_id

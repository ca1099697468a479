"""Page cursors: good where they were made, and nowhere else."""

import base64

import msgspec
import pytest

from seriatim.api.core.cursor import CursorCodec
from seriatim.domain.errors import BadRequest
from tests.support.rest import RestServer


class Place(msgspec.Struct, frozen=True):
    after: int
    direction: str


class Elsewhere(msgspec.Struct, frozen=True):
    activity: str


PLACE = Place(41, "forward")


@pytest.fixture
def cursors(server: RestServer) -> CursorCodec:
    return CursorCodec(server.secrets)


def test_a_cursor_brings_back_what_it_was_given(cursors: CursorCodec) -> None:
    assert cursors.decode(cursors.encode("messages", "chat_1", PLACE), "messages", "chat_1", Place) == PLACE


def test_a_cursor_is_of_use_only_at_its_endpoint_and_in_its_scope(cursors: CursorCodec) -> None:
    text = cursors.encode("messages", "chat_1", PLACE)
    for endpoint, scope in [("members", "chat_1"), ("messages", "chat_2"), ("messages", "chat_"), ("m", "essages")]:
        with pytest.raises(BadRequest):
            cursors.decode(text, endpoint, scope, Place)


def test_where_endpoint_ends_and_scope_begins_is_part_of_the_tag(cursors: CursorCodec) -> None:
    with pytest.raises(BadRequest):
        cursors.decode(cursors.encode("ab", "c", PLACE), "a", "bc", Place)


def test_a_changed_cursor_is_refused_wherever_it_was_changed(cursors: CursorCodec) -> None:
    text = cursors.encode("messages", "chat_1", PLACE)
    payload, tag = text.split(".")
    forged = base64.urlsafe_b64encode(b'{"v":1,"at":{"after":0,"direction":"forward"}}').rstrip(b"=").decode()
    for changed in [
        f"{forged}.{tag}",
        f"{payload}.{forged}",
        f"{payload}.{'B' if tag[0] == 'A' else 'A'}{tag[1:]}",
        payload,
        f"{payload}.",
        f".{tag}",
    ]:
        with pytest.raises(BadRequest):
            cursors.decode(changed, "messages", "chat_1", Place)


@pytest.mark.parametrize("text", ["", ".", "a.b", "ä.ö", "a" * 5000, "a.b.c", "a\n.b", "=.="])
def test_what_never_was_a_cursor_is_refused(cursors: CursorCodec, text: str) -> None:
    with pytest.raises(BadRequest):
        cursors.decode(text, "messages", "chat_1", Place)


def test_a_cursor_of_another_version_or_kind_is_refused(server: RestServer, cursors: CursorCodec) -> None:
    with pytest.raises(BadRequest):
        cursors.decode(cursors.encode("messages", "chat_1", PLACE), "messages", "chat_1", Elsewhere)
    payload = b'{"v":2,"at":{"after":41,"direction":"forward"}}'
    tag = server.secrets.cursor_tag(b'["messages","chat_1"]' + payload)
    text = ".".join([base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (payload, tag)])
    with pytest.raises(BadRequest):
        cursors.decode(text, "messages", "chat_1", Place)

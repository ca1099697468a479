"""Page cursors under all possible meddling: only the very text that was given out is taken back."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seriatim.api.core.cursor import CursorCodec
from seriatim.domain.errors import BadRequest
from tests.unit.api.chat_api_harness import CursorSecrets

CURSORS = CursorCodec(CursorSecrets())


class Place(msgspec.Struct, frozen=True):
    at: int
    name: str
    back: bool


places = st.builds(Place, at=st.integers(0, 2**53 - 1), name=st.text(max_size=20), back=st.booleans())
names = st.text(max_size=20)


@given(places, names, names)
def test_a_cursor_brings_back_whatever_it_was_given(place: Place, endpoint: str, scope: str) -> None:
    assert CURSORS.decode(CURSORS.encode(endpoint, scope, place), endpoint, scope, Place) == place


@given(places, st.data())
def test_a_cursor_with_any_change_at_all_is_refused(place: Place, data: st.DataObject) -> None:
    text = CURSORS.encode("messages", "chat_1", place)
    start = data.draw(st.integers(0, len(text)), "from")
    end = data.draw(st.integers(start, min(len(text), start + 3)), "to")
    # Mostly characters that cursors are made of: the others are noticed at once.
    piece = data.draw(st.text("AQgw019_-.=", max_size=3) | st.text(max_size=3), "replaced by")
    changed = text[:start] + piece + text[end:]
    if changed != text:
        with pytest.raises(BadRequest):
            CURSORS.decode(changed, "messages", "chat_1", Place)


def test_a_cursor_whose_last_character_was_changed_in_bits_that_say_nothing_is_refused() -> None:
    text = CURSORS.encode("messages", "chat_1", Place(1, "a", False))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for last in alphabet.replace(text[-1], ""):
        with pytest.raises(BadRequest):
            CURSORS.decode(text[:-1] + last, "messages", "chat_1", Place)


@given(places, places)
def test_halves_of_two_cursors_make_no_third(one: Place, other: Place) -> None:
    first, second = (CURSORS.encode("messages", "chat_1", place).split(".") for place in (one, other))
    if one != other:
        with pytest.raises(BadRequest):
            CURSORS.decode(f"{first[0]}.{second[1]}", "messages", "chat_1", Place)


@given(places, names, names, names, names)
@example(Place(1, "a", False), "ab", "c", "a", "bc")
def test_a_cursor_belongs_to_its_endpoint_and_scope(
    place: Place, endpoint: str, scope: str, other_endpoint: str, other_scope: str
) -> None:
    if (endpoint, scope) != (other_endpoint, other_scope):
        with pytest.raises(BadRequest):
            CURSORS.decode(CURSORS.encode(endpoint, scope, place), other_endpoint, other_scope, Place)


@given(st.text(max_size=200))
def test_no_text_at_all_is_a_cursor_by_chance(text: str) -> None:
    with pytest.raises(BadRequest):
        CURSORS.decode(text, "messages", "chat_1", Place)

"""What a phone number, a code and a name may be: docs/spec/rest.md#limits."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.domain import limits
from seriatim.domain.account import is_clean, is_code, is_display_name, is_phone_number, phone_hash


@pytest.mark.parametrize("number", ["+1234567", "+491511234567", "+123456789012345"])
def test_seven_to_fifteen_digits_after_a_plus_are_a_phone_number(number: str) -> None:
    assert is_phone_number(number)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "+123456",  # six digits
        "+1234567890123456",  # sixteen
        "+0234567",  # no country begins with 0
        "1234567",
        "++1234567",
        "+1234567\n",
        " +1234567",
        "+1 234567",
        "+12345\u0663\u0664",  # digits, but not ours
        "+１２３４５６７",
        "+123456a",
    ],
)
def test_anything_else_is_no_phone_number(text: str) -> None:
    assert not is_phone_number(text)


def test_a_phone_is_stored_as_its_sha256() -> None:
    assert phone_hash("+1234567") == hashlib.sha256(b"+1234567").hexdigest()
    assert phone_hash("+1234567") != phone_hash("+1234568")


def test_a_code_is_six_ascii_digits() -> None:
    assert is_code("000000")
    assert is_code("987654")
    for text in (
        "",
        "12345",
        "1234567",
        "12345a",
        "123456\n",
        "-12345",
        "12 345",
        "\u0661\u0662\u0663\u0664\u0665\u0666",
    ):
        assert not is_code(text), text


def test_a_display_name_has_one_to_64_characters() -> None:
    assert not is_display_name("")
    assert is_display_name("A")
    assert is_display_name("\N{SNOWMAN}" * limits.DISPLAY_NAME_CHARS_MAX)  # characters, not bytes
    assert not is_display_name("A" * (limits.DISPLAY_NAME_CHARS_MAX + 1))
    assert not is_display_name(" Ann")


@pytest.mark.parametrize(
    "text", ["Ann", "Ann B. O'Neil", "Zoë", "李小龍", "\N{SNOWMAN}\N{VARIATION SELECTOR-16}", "a\u00a0b"]
)
def test_names_of_all_scripts_are_clean(text: str) -> None:
    assert is_clean(text)


@pytest.mark.parametrize("text", [" Ann", "Ann ", "\tAnn", "Ann\n", "\u00a0Ann", "Ann\u2003", "\u3000"])
def test_whitespace_at_an_edge_is_not_clean(text: str) -> None:
    assert not is_clean(text)


@pytest.mark.parametrize("code", [0x00, 0x07, 0x0A, 0x1F, 0x7F, 0x80, 0x85, 0x9F, 0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_control_characters_and_lone_surrogates_are_not_clean(code: int) -> None:
    assert not is_clean(f"a{chr(code)}b")


@pytest.mark.parametrize("code", [0x20, 0x7E, 0xA1, 0xD7FF, 0xE000, 0x10FFFF])
def test_their_neighbours_are_clean(code: int) -> None:
    assert is_clean(f"a{chr(code)}b")


@given(st.text(st.characters(exclude_categories=[])))
def test_what_is_clean_can_be_written_as_utf8(text: str) -> None:
    if is_clean(text):
        assert text.encode().decode() == text

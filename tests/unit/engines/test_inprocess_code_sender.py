"""One-time codes for development and tests."""

import pytest

from seriatim.domain.account import is_code
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.code_sender import FixedCodes, LogCodeSender, fixed_code, masked_phone, new_code


async def test_the_console_shows_the_code_and_only_the_edges_of_the_number() -> None:
    lines: list[str] = []
    await LogCodeSender(lines.append).send("+4915112345678", "012345")
    assert lines == ["one-time code for +49*********78: 012345"]


async def test_nothing_is_sent_where_everyone_knows_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    await FixedCodes().send("+4915112345678", "000000")
    assert capsys.readouterr().out == ""
    assert fixed_code(SystemClock()) == "000000"


@pytest.mark.parametrize(
    ("number", "masked"),
    [
        ("+12025550123", "+1********23"),
        ("+79161234567", "+7********67"),
        ("+4915112345678", "+49*********78"),
        ("+353861234567", "+353*******67"),
        ("+8613812345678", "+86*********78"),
        ("+85212345678", "+852******78"),
        ("+9711234567", "+971*****67"),
        ("+1234567", "+1****67"),
        ("+", "***"),
        ("not a number", "***"),
        ("+0123456789", "***"),
    ],
)
def test_a_masked_number_keeps_its_country_and_two_digits(number: str, masked: str) -> None:
    assert masked_phone(number) == masked


def test_codes_have_six_digits_and_all_are_possible() -> None:
    class Chosen(SystemClock):
        bits = 0

        def random_bits(self, bits: int) -> int:
            assert bits >= 64, "too few bits make some codes likelier than others"
            return self.bits

    clock = Chosen()
    for clock.bits, code in ((0, "000000"), (7, "000007"), (999_999, "999999"), (2**127 + 1_000_000, "105728")):
        assert new_code(clock) == code
    codes = [new_code(SystemClock()) for _ in range(3000)]
    assert all(is_code(code) for code in codes)
    assert [sum(code[place] == digit for code in codes) > 200 for place in range(6) for digit in "0123456789"] == (
        [True] * 60
    )

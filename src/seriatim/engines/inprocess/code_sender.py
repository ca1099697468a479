"""One-time codes without a carrier: printed for a developer, or fixed in a test."""

from collections.abc import Callable

from seriatim.domain import limits
from seriatim.domain.account import is_phone_number
from seriatim.domain.errors import ServiceUnavailable
from seriatim.ports.clock import Clock
from seriatim.ports.code_sender import CodeSender

CodeSource = Callable[[Clock], str]


class LogCodeSender(CodeSender):
    """For development: everyone who reads the console can sign in as any user. `print_line` prints one line."""

    def __init__(self, print_line: Callable[[str], object]) -> None:
        self._print_line = print_line

    async def send(self, phone_number: str, code: str) -> None:
        try:
            self._print_line(f"one-time code for {masked_phone(phone_number)}: {code}")
        except OSError as error:
            raise ServiceUnavailable(
                "the code could not be sent; try again soon",
                log_reason="the code could not be printed; is the console closed?",
            ) from error


class FixedCodes(CodeSender):
    """For tests, with `fixed_code`: nothing is sent, because the code is always the same."""

    async def send(self, phone_number: str, code: str) -> None:
        return


def new_code(clock: Clock) -> str:
    """All codes are equally likely: with 128 bits the bias of the division is negligible."""
    return f"{clock.random_bits(128) % 10**limits.CODE_DIGITS:0{limits.CODE_DIGITS}d}"


def fixed_code(clock: Clock) -> str:
    return "0" * limits.CODE_DIGITS


def masked_phone(phone_number: str) -> str:
    """`+4915112345678` -> `+49*********78`: the country and the last two digits. Anything else is hidden whole."""
    if not is_phone_number(phone_number):
        return "***"
    country, rest = phone_number[: 1 + _country_digits(phone_number[1:])], phone_number[-2:]
    return country + "*" * (len(phone_number) - len(country) - len(rest)) + rest


def _country_digits(digits: str) -> int:
    """ITU E.164: 1 and 7 stand alone, some pairs are countries, and every other code has three digits."""
    if digits[:1] in "17":
        return 1
    return 2 if int(digits[1:2]) in _SECOND_DIGITS[int(digits[:1])] else 3


_SECOND_DIGITS = {
    2: (0, 7),
    3: (0, 1, 2, 3, 4, 6, 9),
    4: (0, 1, 3, 4, 5, 6, 7, 8, 9),
    5: (1, 2, 3, 4, 5, 6, 7, 8),
    6: (0, 1, 2, 3, 4, 5, 6),
    8: (1, 2, 4, 6),
    9: (0, 1, 2, 3, 4, 5, 8),
}

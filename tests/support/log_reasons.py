"""Why something failed, which is for the log alone: the text of the error says only what a client may know."""

from collections.abc import Callable

from seriatim.domain.errors import SeriatimError


def because(text: str) -> Callable[[BaseException], bool]:
    """For the `check` of `pytest.raises`."""
    return lambda error: isinstance(error, SeriatimError) and text in error.log_reason

"""What can go wrong before an engine answers: it is not on this machine, or it is and does not come up."""

from collections.abc import Callable, Iterable


class EngineMissing(Exception):
    """Something an engine needs is not on this machine. The text says what was not run, and how to get it."""


class EngineFailed(Exception):
    """An engine is here, but did not install, start or answer. The text ends with its last words."""


def missing(engine: str, why: str, remedy: str) -> EngineMissing:
    return EngineMissing(f"{engine} was not run: {why}. {remedy}")


def each_of(steps: Iterable[Callable[[], object]]) -> None:
    """Takes every step, and only then raises EngineMissing, with a line for each that could not be taken."""
    lines: list[str] = []
    for step in steps:
        try:
            step()
        except EngineMissing as error:
            lines.append(str(error))
    if lines:
        raise EngineMissing("\n".join(lines))

"""What changes while it is looked at is accused only if it looks wrong however often one looks."""

from collections.abc import Sequence

import pytest

from seriatim.domain import limits
from seriatim.operations.check.findings import Findings

WRONG = "it is wrong"


class Looks:
    """What each look finds; the last one goes on for ever."""

    def __init__(self, *found: str | None) -> None:
        self._found = list(found)
        self.count = 0

    async def __call__(self) -> str | None:
        self.count += 1
        return self._found[min(self.count, len(self._found)) - 1]


def passes(*subjects: str) -> Findings:
    """The second pass, after a first one that suspected these."""
    first = Findings(lambda rows: None)
    for subject in subjects:
        first.violated("R11", subject, WRONG)
    return Findings(lambda rows: None, first)


def accused(findings: Findings) -> Sequence[str]:
    return [violation.subject for violation in findings.report().shown]


async def test_the_first_pass_reads_once_and_suspects() -> None:
    findings, looks = Findings(lambda rows: None), Looks(WRONG, None)
    await findings.confirm("R11", "chat", looks)
    assert (looks.count, findings.total) == (1, 1)


async def test_what_is_right_at_one_of_many_readings_is_no_violation() -> None:
    findings, looks = passes("chat"), Looks(*[WRONG] * (limits.CHECK_READS_MAX - 1), None)
    await findings.confirm("R11", "chat", looks)
    assert (looks.count, accused(findings)) == (limits.CHECK_READS_MAX, [])


async def test_what_is_wrong_at_every_reading_is_a_violation() -> None:
    findings, looks = passes("chat"), Looks(WRONG)
    await findings.confirm("R11", "chat", looks)
    assert (looks.count, accused(findings)) == (limits.CHECK_READS_MAX, ["chat"])


async def test_what_was_right_in_the_first_pass_is_neither_accused_nor_looked_at_again() -> None:
    findings, looks = passes("another"), Looks(WRONG)
    await findings.confirm("R11", "chat", looks)
    assert (looks.count, accused(findings)) == (1, [])


async def test_of_too_many_suspects_the_rest_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.domain.limits.CHECK_REREADS_MAX", limits.CHECK_READS_MAX)
    findings, looks = passes("one", "two", "three"), [Looks(WRONG) for _ in range(3)]
    for subject, look in zip(("one", "two", "three"), looks, strict=True):
        await findings.confirm("R11", subject, look)
    assert [look.count for look in looks] == [limits.CHECK_READS_MAX, 2, 1]
    assert accused(findings) == ["one", "two", "three"]

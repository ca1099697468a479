"""A hole is closed by a rule: its schedule passes with the rule, and fails with the rule taken out."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.support.bench import Schedule, simulate

RuleRemoved: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def closed_by(*rules_removed: RuleRemoved) -> Callable[[Schedule], Callable[[pytest.MonkeyPatch], None]]:
    """Each of the given patches takes one rule out; the schedule must notice each of them."""

    def decorate(schedule: Schedule) -> Callable[[pytest.MonkeyPatch], None]:
        def test(monkeypatch: pytest.MonkeyPatch) -> None:
            simulate(schedule)
            for remove_rule in rules_removed:
                with monkeypatch.context() as patch:
                    remove_rule(patch)
                    with pytest.raises(AssertionError):
                        simulate(schedule)

        test.__name__ = schedule.__name__
        test.__qualname__ = schedule.__qualname__
        test.__module__ = schedule.__module__
        test.__doc__ = schedule.__doc__
        return test

    return decorate

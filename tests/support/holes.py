"""A hole is closed by a rule: its story ends well with the rule, and must not with the rule taken out.

A story takes both ways to durability: the long one on engines in memory, where every call can fail on its own, and the
short one on a real data folder (`tests/holes/ways.py` names the stories that cannot run there).
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest

from tests.support.bench import Schedule, simulate
from tests.support.embedded_bench import embedded

RuleRemoved: TypeAlias = Callable[[pytest.MonkeyPatch], None]
Story: TypeAlias = Callable[[pytest.MonkeyPatch, str], None]

LONG, SHORT = "long way on memory", "short way on a folder"


def closed_by(*rules_removed: RuleRemoved, short: Sequence[RuleRemoved] | None = None) -> Callable[[Schedule], Story]:
    """Each of the given patches takes one rule out; the schedule must notice each of them.

    `short`: the patches for the short way, where a rule is kept by other code there.
    """

    def decorate(schedule: Schedule) -> Story:
        def test(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
            on = embedded if way == SHORT else None
            simulate(schedule, on=on)
            for remove_rule in rules_removed if way == LONG or short is None else short:
                with monkeypatch.context() as patch:
                    remove_rule(patch)
                    with pytest.raises(AssertionError):
                        simulate(schedule, on=on)

        test.__name__ = schedule.__name__
        test.__qualname__ = schedule.__qualname__
        test.__module__ = schedule.__module__
        test.__doc__ = schedule.__doc__
        return test

    return decorate

"""Runs each story of a hole on both engines: with all rules it ends well, without one of its rules it must not.

On engines in memory sends go through the pipeline, where every call can fail on its own. On a data folder they go
through the atomic commit. `@closed_by(...)` names the rules that close the hole:

- a string is a mutant of the simulator, anything else is declared in `durability_rules` or `delivery_rules`;
- `on_folder=[...]`: the rules on a data folder, where other code keeps them;
- `on_folder="..."`: why the story cannot run on a data folder.
"""

from collections.abc import Generator, Iterator

import pytest

from seriatim.simulation.mutants.mutant import RemovedRule
from tests.holes.removed_rule import removed_rule as rule_of
from tests.support.cluster_harness import ClusterHarness
from tests.support.durability_harness import DurabilityHarness
from tests.support.embedded_harness import EmbeddedCluster, EmbeddedDurabilityHarness
from tests.support.virtual_time import opened

MEMORY, FOLDER = "memory", "folder"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "closed_by(*rules, on_folder=None): the rules that close the hole of this story")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("closed_by")
    if marker is None:
        return
    on_folder = marker.kwargs.get("on_folder")
    cases = [(MEMORY, None), *[(MEMORY, rule_of(rule)) for rule in marker.args]]
    if not isinstance(on_folder, str):
        rules = marker.args if on_folder is None else on_folder
        cases += [(FOLDER, None), *[(FOLDER, rule_of(rule)) for rule in rules]]
    ids = [engines if rule is None else f"{engines} without {rule.name}" for engines, rule in cases]
    metafunc.parametrize(("engines", "removed_rule"), cases, ids=ids, indirect=True)


@pytest.fixture
def engines(request: pytest.FixtureRequest) -> str:
    """What the harness runs on: `MEMORY` or `FOLDER`."""
    return str(request.param)


@pytest.fixture
def removed_rule(request: pytest.FixtureRequest) -> Iterator[RemovedRule | None]:
    """The rule that this run lacks, or None for a run with all of them."""
    rule: RemovedRule | None = request.param
    if rule is None:
        yield None
    else:
        with rule.apply():
            yield rule


@pytest.fixture
def harness(engines: str, removed_rule: RemovedRule | None) -> Iterator[DurabilityHarness]:
    yield from opened(EmbeddedDurabilityHarness if engines == FOLDER else DurabilityHarness)


@pytest.fixture
def cluster(engines: str, removed_rule: RemovedRule | None) -> Iterator[ClusterHarness]:
    yield from opened(EmbeddedCluster if engines == FOLDER else ClusterHarness)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A story that ends well although one of its rules is missing shows nothing."""
    rule = pyfuncitem.funcargs.get("removed_rule")
    if rule is None:
        return (yield)
    with pytest.raises(AssertionError):
        yield
    return True

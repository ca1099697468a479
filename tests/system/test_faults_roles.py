"""One process of each role is killed, stands still or is restarted, while people write: the others carry on."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from seriatim.domain.limits import CLIENT_SEND_UNANSWERED_S, RPC_PING_S, RPC_PINGS_UNHEARD_MAX
from tests.system.deployment import Process
from tests.system.fault_list import KILLED, RESTARTED, STOOD_STILL
from tests.system.stage import Stage, staged
from tests.system.storm import Storm

pytestmark = pytest.mark.timeout(300)

ROLES = ("gateway", "ingest", "fanout", "api")
# Longer than whoever waits for it has patience: clients for a gateway and for REST, gateways for an ingest.
STILL_S = {
    "gateway": CLIENT_SEND_UNANSWERED_S + 1,
    "ingest": RPC_PING_S * (RPC_PINGS_UNHEARD_MAX + 2),
    "fanout": 5.0,
    "api": 3.0,
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("faults")) as (stage, _, _):
        yield stage


@pytest.mark.parametrize("role", ROLES)
async def test_a_process_that_is_killed_loses_nothing_and_is_started_again(stage: Stage, role: str) -> None:
    async with stage.enduring(KILLED[role]) as storm:
        process = await _at_work(stage, storm, role)
        storm.expect_restart(process)
        process.signal(signal.SIGKILL)
        await _the_other_answers(stage, role)


@pytest.mark.parametrize("role", ROLES)
async def test_a_process_that_stands_still_holds_nobody_up_for_long_and_wakes_up_harmless(
    stage: Stage, role: str
) -> None:
    async with stage.enduring(STOOD_STILL[role]) as storm:
        process = await _at_work(stage, storm, role)
        process.signal(signal.SIGSTOP)
        try:
            await _the_other_answers(stage, role)
            await asyncio.sleep(STILL_S[role])
        finally:
            process.signal(signal.SIGCONT)


@pytest.mark.parametrize("role", ROLES)
async def test_a_process_that_is_told_to_stop_hands_over_its_work(stage: Stage, role: str) -> None:
    async with stage.enduring(RESTARTED[role]) as storm:
        process = await _at_work(stage, storm, role)
        storm.expect_restart(process)
        process.signal(signal.SIGTERM)
        storm.over()
        await _the_other_answers(stage, role)
    assert [line for line in process.lines() if line["event"] == "stopped"], "it was told, and not cut"
    if role in ("ingest", "fanout"):
        assert storm.talk.troubles == []


async def _at_work(stage: Stage, storm: Storm, role: str) -> Process:
    """Of two, one that has something to do with this talk."""
    if role != "fanout":
        return next(each for each in stage.deployment.all if each.role == role)
    before = {each.name: _delivered(each) for each in stage.deployment.fanouts}
    found: list[Process] = []

    def someone_works() -> bool:
        found[:] = [each for each in stage.deployment.fanouts if _delivered(each) > before[each.name]]
        return bool(found)

    await storm.talk.until(someone_works, "a fanout delivers something")
    return found[0]


async def _the_other_answers(stage: Stage, role: str) -> None:
    """Of REST no client of ours knows a second address; a balancer before it would."""
    if role == "api":
        assert await asyncio.to_thread(stage.rest_elsewhere) == 200


def _delivered(process: Process) -> float:
    return process.metric("fanout_messages_delivered_rate_total")

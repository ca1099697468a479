"""One process of each role is killed, stands still or is restarted, while people write: the others carry on."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from seriatim.domain import limits
from tests.system.crowd import REFUSED_S, Crowd
from tests.system.deployment import Process
from tests.system.fault_list import CROWDED, KILLED, RESTARTED, STOOD_STILL
from tests.system.lines import BehindALine
from tests.system.stage import Stage, staged
from tests.system.storm import Storm

pytestmark = pytest.mark.timeout(300)

ROLES = ("gateway", "ingest", "fanout", "api")
# Longer than whoever waits for it has patience: clients for a gateway and for REST, gateways for an ingest.
STILL_S = {
    "gateway": limits.CLIENT_SEND_UNANSWERED_S + 1,
    "ingest": limits.GRPC_PING_S * (limits.GRPC_PINGS_UNANSWERED_MAX + 2),
    "fanout": 5.0,
    "api": 3.0,
}
CROWDED_STILL_S = 8.0


@pytest.fixture(scope="module")
def staging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, BehindALine]]:
    with staged(tmp_path_factory.mktemp("faults")) as (stage, _, dynamodb):
        yield stage, dynamodb


@pytest.fixture
def stage(staging: tuple[Stage, BehindALine]) -> Stage:
    return staging[0]


@pytest.fixture
def dynamodb(staging: tuple[Stage, BehindALine]) -> BehindALine:
    return staging[1]


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


# --- H26: a fault of one ingest or one call refuses nothing that does not depend on it --------------------------------


async def test_b2_an_ingest_killed_with_forty_sends_under_way_refuses_no_chat_of_the_other_for_a_second(
    stage: Stage,
) -> None:
    broken = stage.deployment.ingests[0]
    async with stage.enduring(CROWDED["killed"]) as storm, Crowd(stage.deployment, broken) as crowd:
        storm.expect_restart(broken)
        storm.begins()
        broken.signal(signal.SIGSTOP)  # so that all of them are under way
        await crowd.all_wait()
        broken.signal(signal.SIGKILL)
        storm.over()
        await crowd.calm_goes_on()
        await crowd.all_wait()
    assert crowd.calm_was_refused_s() <= REFUSED_S, crowd.calm_refusals


async def test_b2_an_ingest_that_stands_still_for_8_seconds_refuses_no_chat_of_the_other_for_a_second(
    stage: Stage,
) -> None:
    broken = stage.deployment.ingests[0]
    async with stage.enduring(CROWDED["still"]) as storm, Crowd(stage.deployment, broken) as crowd:
        storm.begins()
        broken.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(CROWDED_STILL_S)
        finally:
            broken.signal(signal.SIGCONT)
        storm.over()
        await crowd.calm_goes_on()
    assert crowd.calm_was_refused_s() <= REFUSED_S, crowd.calm_refusals


async def test_b2_one_reset_of_one_lookup_refuses_nothing(stage: Stage, dynamodb: BehindALine) -> None:
    broken = stage.deployment.ingests[0]
    async with stage.enduring(CROWDED["reset"]) as storm, Crowd(stage.deployment, broken) as crowd:
        broken.signal(signal.SIGSTOP)  # for a moment, so that one lookup is about many drafts
        try:
            await crowd.all_wait()
            storm.begins()
            was_reset = dynamodb.reset_one(b"BatchGetItem", crowd.chat_id.encode())
        finally:
            broken.signal(signal.SIGCONT)
        await storm.talk.until(was_reset, "a lookup of the crowd is reset")
        storm.over()
        await crowd.calm_goes_on()
    assert crowd.calm_was_refused_s() <= REFUSED_S, crowd.calm_refusals


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

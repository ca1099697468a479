"""One process of each role is killed, stands still or is restarted, while users write: the others carry on."""

import asyncio
import signal

import pytest

from seriatim.domain import limits
from tests.system.deployment import Process
from tests.system.faults.concurrent_writers import REFUSED_S, ConcurrentWriters
from tests.system.faults.fault_deployment import FaultDeployment
from tests.system.faults.fault_list import CONCURRENT, KILLED, PAUSED, RESTARTED
from tests.system.faults.fault_run import FaultRun

pytestmark = pytest.mark.timeout(300)

ROLES = ("gateway", "ingest", "fanout", "api")
# Longer than its callers wait: clients for a gateway and for REST, gateways for an ingest.
PAUSED_S = {
    "gateway": limits.CLIENT_SEND_UNANSWERED_S + 1,
    "ingest": limits.GRPC_PING_S * (limits.GRPC_PINGS_UNANSWERED_MAX + 2),
    "fanout": 5.0,
    "api": 3.0,
}
CONCURRENT_PAUSED_S = 8.0


@pytest.mark.parametrize("role", ROLES)
async def test_a_process_that_is_killed_loses_nothing_and_is_started_again(
    fault_deployment: FaultDeployment, role: str
) -> None:
    async with fault_deployment.under_load(KILLED[role]) as run:
        process = await _at_work(fault_deployment, run, role)
        run.expect_restart(process)
        process.signal(signal.SIGKILL)
        await _the_other_answers(fault_deployment, role)


@pytest.mark.parametrize("role", ROLES)
async def test_a_paused_process_delays_no_user_for_long_and_wakes_up_harmless(
    fault_deployment: FaultDeployment, role: str
) -> None:
    async with fault_deployment.under_load(PAUSED[role]) as run:
        process = await _at_work(fault_deployment, run, role)
        process.signal(signal.SIGSTOP)
        try:
            await _the_other_answers(fault_deployment, role)
            await asyncio.sleep(PAUSED_S[role])
        finally:
            process.signal(signal.SIGCONT)


@pytest.mark.parametrize("role", ROLES)
async def test_a_process_that_gets_sigterm_hands_over_its_work(fault_deployment: FaultDeployment, role: str) -> None:
    async with fault_deployment.under_load(RESTARTED[role]) as run:
        process = await _at_work(fault_deployment, run, role)
        run.expect_restart(process)
        process.signal(signal.SIGTERM)
        run.mark_end()
        await _the_other_answers(fault_deployment, role)
    assert [line for line in process.lines() if line["event"] == "stopped"], "it drained, and was not cut"
    if role in ("ingest", "fanout"):
        assert run.load.errors == []


# --- H26: a fault of one ingest or one call refuses nothing that does not depend on it --------------------------------


async def test_b2_an_ingest_killed_with_forty_sends_under_way_refuses_no_chat_of_the_other_for_a_second(
    fault_deployment: FaultDeployment,
) -> None:
    broken = fault_deployment.cluster.ingests[0]
    async with (
        fault_deployment.under_load(CONCURRENT["killed"]) as run,
        ConcurrentWriters(fault_deployment.cluster, broken) as writers,
    ):
        run.expect_restart(broken)
        run.mark_begin()
        broken.signal(signal.SIGSTOP)  # so that all of them are under way
        await writers.all_pending()
        broken.signal(signal.SIGKILL)
        run.mark_end()
        await writers.bystanders_progress()
        await writers.progress()
    assert writers.bystanders_refused_s() <= REFUSED_S, writers.bystander_refusals


async def test_b2_an_ingest_that_stands_still_for_8_seconds_refuses_no_chat_of_the_other_for_a_second(
    fault_deployment: FaultDeployment,
) -> None:
    broken = fault_deployment.cluster.ingests[0]
    async with (
        fault_deployment.under_load(CONCURRENT["still"]) as run,
        ConcurrentWriters(fault_deployment.cluster, broken) as writers,
    ):
        run.mark_begin()
        broken.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(CONCURRENT_PAUSED_S)
        finally:
            broken.signal(signal.SIGCONT)
        run.mark_end()
        await writers.bystanders_progress()
    assert writers.bystanders_refused_s() <= REFUSED_S, writers.bystander_refusals


async def test_b2_one_reset_of_one_lookup_refuses_nothing(fault_deployment: FaultDeployment) -> None:
    broken = fault_deployment.cluster.ingests[0]
    async with (
        fault_deployment.under_load(CONCURRENT["reset"]) as run,
        ConcurrentWriters(fault_deployment.cluster, broken) as writers,
    ):
        broken.signal(signal.SIGSTOP)  # for a moment, so that one lookup is about many drafts
        try:
            await writers.all_pending()
            run.mark_begin()
            was_reset = fault_deployment.dynamodb.reset_one(b"BatchGetItem", writers.chat_id.encode())
        finally:
            broken.signal(signal.SIGCONT)
        await run.load.until(was_reset, "a lookup of the writers is reset")
        run.mark_end()
        await writers.bystanders_progress()
    assert writers.bystanders_refused_s() <= REFUSED_S, writers.bystander_refusals


async def _at_work(fault_deployment: FaultDeployment, run: FaultRun, role: str) -> Process:
    """Of two, one that has something to do with this load."""
    if role != "fanout":
        return next(each for each in fault_deployment.cluster.all if each.role == role)
    before = {each.name: _delivered(each) for each in fault_deployment.cluster.fanouts}
    found: list[Process] = []

    def someone_works() -> bool:
        found[:] = [each for each in fault_deployment.cluster.fanouts if _delivered(each) > before[each.name]]
        return bool(found)

    await run.load.until(someone_works, "a fanout delivers something")
    return found[0]


async def _the_other_answers(fault_deployment: FaultDeployment, role: str) -> None:
    """The REST client of these tests knows no second address; a balancer before it would."""
    if role == "api":
        assert await asyncio.to_thread(fault_deployment.rest_elsewhere) == 200


def _delivered(process: Process) -> float:
    return process.metric("fanout_messages_delivered_rate_total")

"""H26: one chat that is overloaded by writers within their limits refuses no send of another chat."""

import pytest

from tests.system.faults.fault_deployment import FaultDeployment
from tests.system.faults.overloaded_chat import CALL_S, OverloadedChat

pytestmark = pytest.mark.timeout(300)

REFUSALS = 50  # far more than the failures that would open a breaker
CALM_ACKS = 40  # while sends of the overloaded chat are refused


async def test_b2_an_overloaded_chat_refuses_no_calm_chat(fault_deployment: FaultDeployment) -> None:
    async with OverloadedChat(fault_deployment) as chats:
        with fault_deployment.dynamodb.slow_for(chats.chat_id, CALL_S):
            await chats.until(lambda: sum(chats.refusals.values()) >= REFUSALS)
            wanted = chats.calm_acks + CALM_ACKS
            await chats.until(lambda: chats.calm_acks >= wanted or bool(chats.calm_refusals))
    assert set(chats.refusals) <= {"SERVER_BUSY", "SERVICE_UNAVAILABLE"}, "all writers are within their limits"
    assert chats.lost == 0
    assert chats.calm_refusals == []

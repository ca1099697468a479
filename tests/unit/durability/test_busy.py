"""Every bound of the durability plane that refuses a draft says when to come back."""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import ServerBusy
from seriatim.domain.message import Receipt
from tests.support.durability_harness import CHAT, DurabilityHarness, draft
from tests.support.virtual_time import simulate

OTHER = "chat_2"


@pytest.mark.parametrize(
    ("limit", "atomic_store", "chats"),
    [
        ("COMMIT_BATCH_DRAFTS_MAX", True, (CHAT, CHAT)),
        ("CHAT_QUEUE_DRAFTS_MAX", False, (CHAT, CHAT)),
        ("PIPELINES_MAX", False, (CHAT, OTHER)),
    ],
)
def test_one_draft_too_many_is_refused_for_a_second_and_stored_then(
    monkeypatch: pytest.MonkeyPatch, limit: str, atomic_store: bool, chats: tuple[str, str]
) -> None:
    monkeypatch.setattr(limits, limit, 1)

    async def schedule(harness: DurabilityHarness) -> None:
        harness.add_chat(OTHER)
        node = harness.node(atomic_store=atomic_store)
        first, busy = await asyncio.gather(*(node.submit(draft(at, chat_id=each)) for at, each in enumerate(chats)))
        assert isinstance(first, Receipt)
        assert isinstance(busy, ServerBusy)
        assert busy.retry_after_seconds == 1
        await asyncio.sleep(limits.PIPELINE_IDLE_S + 1)
        assert isinstance(await node.send(draft(1, chat_id=chats[1])), Receipt)

    simulate(schedule)

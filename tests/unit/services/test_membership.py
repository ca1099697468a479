"""Membership changes: committed first, published afterwards; a committed change is kept if publishing fails."""

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Role
from seriatim.domain.errors import AlreadyAMember, AlreadyExists, Forbidden, NotAMember, OutcomeUnknown, SeriatimError
from seriatim.domain.events import ChangeType, ChatCreated, decode
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.ports.directory import CachedMembers
from seriatim.ports.event_log import CHATS, MEMBERSHIPS
from seriatim.services.membership import MembershipObserver, MembershipService
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness, draft
from tests.support.scripted_wire import LOST_REQUEST, LOST_RESPONSE, UNAVAILABLE, ScriptedWire, with_before

DAN = "user_dan"


async def test_a_new_member_publishes_an_event_after_the_commit(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    present: list[bool] = []
    api.node.events_wire.on("append", with_before(lambda: present.append(DAN in harness.store.members(CHAT))))
    membership = await api.service.add(CHAT, DAN, Role.MEMBER, by=ANN)
    assert (membership.user_id, membership.role) == (DAN, Role.MEMBER)
    assert present == [True]
    [event] = harness.membership_events()
    assert (event.chat_id, event.user_id, event.change_type) == (CHAT, DAN, ChangeType.ADDED)
    assert (event.role, event.changed_by, event.member_count_after) == (Role.MEMBER, ANN, 4)


async def test_a_removal_publishes_an_event_after_the_commit(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    present: list[bool] = []
    api.node.events_wire.on("append", with_before(lambda: present.append(BOB in harness.store.members(CHAT))))
    await api.service.remove(CHAT, BOB, by=ANN)
    assert present == [False]
    [event] = harness.membership_events()
    assert (event.user_id, event.change_type, event.changed_by) == (BOB, ChangeType.REMOVED, ANN)
    assert event.member_count_after == 2


async def test_once_a_removal_has_returned_nothing_of_the_removed_is_accepted(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    await api.service.remove(CHAT, BOB, by=ANN)
    assert isinstance(await api.node.failed(draft(1, sender_id=BOB)), NotAMember)


async def test_a_member_who_leaves_is_named_as_the_one_who_changed_it(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    await api.service.leave(CHAT, CID)
    [event] = harness.membership_events()
    assert (event.user_id, event.change_type, event.changed_by) == (CID, ChangeType.REMOVED, CID)
    assert CID not in harness.store.members(CHAT)


async def test_a_departure_names_the_role_that_ended(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    await api.service.change_role(CHAT, BOB, Role.ADMIN, by=ANN)
    await api.service.change_role(CHAT, CID, Role.ADMIN, by=ANN)
    await api.service.remove(CHAT, BOB, by=ANN)
    await api.service.leave(CHAT, CID)
    ended = [event for event in harness.membership_events() if event.change_type is ChangeType.REMOVED]
    assert [(event.user_id, event.role, event.member_count_after) for event in ended] == [
        (BOB, Role.ADMIN, 2),
        (CID, Role.ADMIN, 1),
    ]


async def test_a_changed_role_publishes_an_event(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    membership = await api.service.change_role(CHAT, BOB, Role.ADMIN, by=ANN)
    [event] = harness.membership_events()
    assert membership.role is event.role is Role.ADMIN
    assert (event.change_type, event.member_count_after) == (ChangeType.ROLE_CHANGED, 3)


async def test_a_new_group_publishes_an_event_with_its_members(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    await api.service.create_group(_group("chat_new"), [BOB, CID])
    [event] = _creations(harness)
    assert (event.chat_id, event.created_by, event.initial_members) == ("chat_new", ANN, (ANN, BOB, CID))
    assert (event.chat_type, event.name, event.member_count) == (ChatType.GROUP, "new", 3)
    assert (await api.node.stored(draft(1, chat_id="chat_new"))).sequence == 1


async def test_a_taken_chat_id_is_an_error_and_publishes_no_event(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    with pytest.raises(AlreadyExists):
        await api.service.create_group(_group(CHAT), [BOB])
    assert _creations(harness) == []


async def test_a_resumed_creation_finds_its_chat_and_tells_of_it_recognisably(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    api.node.wire.on("create_group", LOST_RESPONSE)
    with pytest.raises(OutcomeUnknown):
        await api.service.create_group(_group("chat_new"), [BOB])
    assert _creations(harness) == []
    await api.service.create_group(_group("chat_new"), [BOB], resumed=True)
    await api.service.create_group(_group("chat_new"), [BOB], resumed=True)
    first, again = _creations(harness)
    assert first.envelope.event_id == again.envelope.event_id
    assert sorted(harness.store.members("chat_new")) == [ANN, BOB]


async def test_a_resumed_creation_that_never_happened_happens_now(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    await api.service.create_group(_group("chat_new"), [BOB], resumed=True)
    assert [event.initial_members for event in _creations(harness)] == [(ANN, BOB)]


async def test_a_new_direct_chat_publishes_an_event_without_a_name(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    assert await api.service.create_direct(_direct("chat_new"), BOB) == "chat_new"
    [event] = _creations(harness)
    assert (event.chat_id, event.chat_type, event.name) == ("chat_new", ChatType.DIRECT, None)
    assert (event.initial_members, event.member_count) == ((ANN, BOB), 2)
    assert harness.store.chats["chat_new"].name is None


async def test_a_direct_chat_that_exists_is_found_and_publishes_no_event(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    await api.service.create_direct(_direct("chat_first", created_by=BOB), ANN)
    assert await api.service.create_direct(_direct("chat_second"), BOB) == "chat_first"
    assert [event.chat_id for event in _creations(harness)] == ["chat_first"]
    assert "chat_second" not in harness.store.chats


async def test_a_resumed_direct_chat_is_its_own(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    api.node.wire.on("create_direct", LOST_RESPONSE)
    with pytest.raises(OutcomeUnknown):
        await api.service.create_direct(_direct("chat_new"), BOB)
    assert await api.service.create_direct(_direct("chat_new"), BOB) == "chat_new"
    assert [event.chat_id for event in _creations(harness)] == ["chat_new"]


async def test_a_new_name_publishes_no_event(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    renamed = await api.service.rename(CHAT, "better", by=ANN)
    assert (renamed.chat_id, renamed.name) == (CHAT, "better")
    assert harness.store.chats[CHAT] == renamed
    with pytest.raises(Forbidden):
        await api.service.rename(CHAT, "mine", by=BOB)
    assert harness.store.chats[CHAT] == renamed
    assert harness.broker.records(CHATS) == harness.broker.records(MEMBERSHIPS) == []


async def test_a_refused_change_publishes_no_event(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    with pytest.raises(AlreadyAMember):
        await api.service.add(CHAT, BOB, Role.MEMBER, by=ANN)
    with pytest.raises(Forbidden):
        await api.service.remove(CHAT, CID, by=BOB)
    with pytest.raises(NotAMember):
        await api.service.add(CHAT, DAN, Role.MEMBER, by=EVE)
    assert harness.broker.records(MEMBERSHIPS) == []
    assert api.observer.unpublished_chats == []


async def test_a_change_whose_commit_is_uncertain_is_an_error_and_publishes_no_event(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    api.node.wire.on("remove_member", LOST_RESPONSE)
    with pytest.raises(OutcomeUnknown):
        await api.service.remove(CHAT, BOB, by=ANN)
    assert harness.broker.records(MEMBERSHIPS) == []


async def test_a_short_outage_of_the_event_log_is_waited_out(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    api.node.events_wire.on("append", *[UNAVAILABLE] * len(limits.LIFECYCLE_PAUSES_S))
    await api.service.remove(CHAT, BOB, by=ANN)
    assert [event.user_id for event in harness.membership_events()] == [BOB]
    assert api.observer.unpublished_chats == []
    assert harness.loop.time() >= sum(limits.LIFECYCLE_PAUSES_S)


async def test_with_the_event_log_down_the_change_is_kept_the_cache_dropped_and_the_failure_reported(
    harness: DurabilityHarness,
) -> None:
    api = ChatApiHarness(harness)
    api.node.events_wire.always("append", UNAVAILABLE)
    await api.cache(CachedMembers(1, (ANN, BOB, CID)))
    await api.service.remove(CHAT, BOB, by=ANN)
    assert BOB not in harness.store.members(CHAT)
    assert await api.cached() is None
    assert api.observer.unpublished_chats == [CHAT]


async def test_with_the_event_log_working_the_cache_is_left_to_its_readers(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    cached = CachedMembers(1, (ANN, BOB, CID))
    await api.cache(cached)
    await api.service.remove(CHAT, BOB, by=ANN)
    assert await api.cached() == cached


async def test_with_event_log_and_cache_down_the_change_is_still_kept(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    api.node.events_wire.always("append", LOST_REQUEST)
    api.directory_wire.always("forget_members", LOST_REQUEST)
    await api.service.remove(CHAT, BOB, by=ANN)
    assert BOB not in harness.store.members(CHAT)
    assert api.observer.unpublished_chats == [CHAT]


async def test_a_group_is_kept_although_its_event_could_not_be_published(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    api.node.events_wire.always("append", UNAVAILABLE)
    await api.service.create_group(_group("chat_new"), [BOB])
    assert api.observer.unpublished_chats == ["chat_new"]
    assert sorted(harness.store.members("chat_new")) == [ANN, BOB]


async def test_a_repeated_attempt_to_tell_is_recognisable_as_the_same_event(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    api.node.events_wire.on("append", LOST_RESPONSE)
    await api.service.remove(CHAT, BOB, by=ANN)
    first, again = harness.membership_events()
    assert first.envelope.event_id == again.envelope.event_id


async def test_each_change_raises_the_version_that_later_messages_carry(harness: DurabilityHarness) -> None:
    api = ChatApiHarness(harness)
    before = harness.counter().members_version
    await api.service.add(CHAT, DAN, Role.MEMBER, by=ANN)
    await api.service.change_role(CHAT, DAN, Role.ADMIN, by=ANN)
    await api.service.remove(CHAT, DAN, by=ANN)
    await api.service.leave(CHAT, CID)
    await api.node.stored(draft(1))
    assert [event.members_version for event in harness.events()] == [before + 4]


class UnpublishedEvents(MembershipObserver):
    def __init__(self) -> None:
        self.unpublished_chats: list[str] = []

    def event_not_published(self, chat_id: str, error: SeriatimError) -> None:
        self.unpublished_chats.append(chat_id)


class ChatApiHarness:
    """The service on a harness, with a directory of its own."""

    def __init__(self, harness: DurabilityHarness) -> None:
        self.node = harness.node("api-1")
        self.directory_wire = ScriptedWire()
        self.directory = InProcessDirectory(InProcessRegistry(), self.directory_wire, self.node.clock.now_ms)
        self.observer = UnpublishedEvents()
        self.service = MembershipService(
            catalog=self.node.catalog,
            events=self.node.events,
            directory=self.directory,
            clock=self.node.clock,
            producer_id="api-1",
            observe=self.observer,
        )

    async def cache(self, members: CachedMembers) -> None:
        await self.directory.cache_members(CHAT, members, timeout_s=1)

    async def cached(self) -> CachedMembers | None:
        return (await self.directory.cached_members([CHAT], timeout_s=1)).get(CHAT)


def _creations(harness: DurabilityHarness) -> list[ChatCreated]:
    decoded = [decode(record.key, record.value) for record in harness.broker.records(CHATS)]
    return [event for event in decoded if isinstance(event, ChatCreated)]


def _group(chat_id: str) -> Chat:
    return _chat(chat_id, ChatType.GROUP, ANN)


def _direct(chat_id: str, created_by: str = ANN) -> Chat:
    return _chat(chat_id, ChatType.DIRECT, created_by)


def _chat(chat_id: str, chat_type: ChatType, created_by: str) -> Chat:
    began = "2026-01-30T14:30:00.000Z"
    return Chat(
        chat_id=chat_id,
        chat_type=chat_type,
        name="new",
        created_by=created_by,
        created_at=began,
        updated_at=began,
        member_count=0,
    )

"""The suites reject every broken store, each by the promise that it breaks."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.contract import broken_reads
from tests.contract import broken_store as broken
from tests.contract.promises import CATALOG, MESSAGE_LOG, Promise, keep, name_of
from tests.contract.store_engines import MemoryEngine, StoreEngine

PROMISES = {name_of(each): each for each in MESSAGE_LOG.promises + CATALOG.promises}

BROKEN: dict[str, tuple[Callable[[], StoreEngine], str]] = {
    "acks before durable": (broken.AcksBeforeDurable, "persisted_entries_survive_a_crash"),
    **{
        name: (partial(broken.BrokenEngine, log=log), caught_by)
        for name, log, caught_by in (
            ("loses the last entry", broken.LosesTheLastEntry, "persisted_entries_survive_a_crash"),
            ("overwrites a filled slot", broken.OverwritesAFilledSlot, "of_concurrent_commits_to_one_slot_one_wins"),
            ("overwrites a key", broken.OverwritesAKey, "of_concurrent_commits_of_one_key_one_wins"),
            ("ignores the membership check", broken.IgnoresTheMembershipCheck, "a_removed_user_sends_nothing_more"),
            ("names only the first cause", broken.NamesOnlyTheFirstCause, "every_failed_condition_is_named"),
            ("never lets a key expire", broken.NeverLetsAKeyExpire, "an_expired_key_counts_as_absent"),
            ("forgets keys", broken.ForgetsKeys, "a_lookup_sees_all_that_was_committed_before_it"),
            ("seal overwrites", broken.SealOverwrites, "a_seal_returns_what_came_first"),
            ("seal claims to have won", broken.SealClaimsToHaveWon, "a_seal_returns_what_came_first"),
            ("reorders slots", broken.ReordersSlots, "a_read_ascends_and_leaves_holes_out"),
            ("ends early", broken.EndsEarly, "a_walk_through_heavy_pages_misses_nothing"),
            ("repeats a sequence", broken.RepeatsASequence, "concurrent_allocations_get_distinct_slots"),
            ("lowers published_through", broken.LowersPublishedThrough, "who_is_behind_another_owner_gets_nothing"),
            (
                "starts a missing counter at 0",
                broken.StartsAMissingCounterAtZero,
                "without_a_counter_row_nothing_is_allocated",
            ),
            ("flushes too early", broken.FlushesTooEarly, "a_flush_refuses_while_something_may_be_unpublished"),
            ("lowers a watermark", broken.LowersAWatermark, "a_stale_ack_never_lowers_the_watermark"),
            (
                "recovers over a counter",
                broken.RecoversOverAnExistingCounter,
                "a_counter_that_is_there_is_not_recovered",
            ),
            (
                "takes a damaged counter for a missing one",
                broken_reads.TakesADamagedCounterForAMissingOne,
                "a_counter_that_cannot_be_read_is_not_taken_for_a_missing_one",
            ),
            (
                "forgets who left",
                broken_reads.ForgetsWhoLeft,
                "the_highest_watermark_counts_former_members_too",
            ),
            ("reads back ascending", broken_reads.ReadsBackAscending, "a_read_back_descends_and_leaves_holes_out"),
            ("reads back the oldest", broken_reads.ReadsBackTheOldest, "a_read_back_descends_and_leaves_holes_out"),
            (
                "reads back the bound, too",
                broken_reads.ReadsBackTheBoundToo,
                "a_read_back_descends_and_leaves_holes_out",
            ),
            ("ends early going back", broken_reads.EndsEarlyGoingBack, "a_walk_through_heavy_pages_misses_nothing"),
            (
                "invents watermarks",
                broken_reads.InventsWatermarks,
                "watermarks_of_many_are_as_of_now_and_say_since_when",
            ),
            (
                "dates a watermark by every ack",
                broken_reads.DatesAWatermarkByEveryAck,
                "watermarks_of_many_are_as_of_now_and_say_since_when",
            ),
        )
    },
    **{
        name: (partial(broken.BrokenEngine, catalog=catalog), caught_by)
        for name, catalog, caught_by in (
            ("forgets the pair", broken.ForgetsThePair, "a_pair_has_one_chat_for_ever"),
            ("creates a chat twice", broken.CreatesAChatTwice, "a_taken_chat_id_is_refused_and_its_counter_goes_on"),
            ("ignores the cap", broken.IgnoresTheCap, "concurrent_additions_stop_at_the_cap"),
            ("writes before it refuses", broken.WritesBeforeItRefuses, "refused_changes_leave_every_row_as_it_was"),
            ("trusts the caller", broken.TrustsTheCaller, "an_admin_does_not_remove_an_admin"),
            ("anyone names a group", broken_reads.AnyoneNamesAGroup, "others_do_not_name_a_group"),
            ("names a direct chat", broken_reads.NamesADirectChat, "a_direct_chat_has_two_equals_and_never_changes"),
            ("names without a date", broken_reads.NamesWithoutADate, "owner_and_admins_name_a_group"),
            ("counts a name as a change", broken_reads.CountsANameAsAChange, "owner_and_admins_name_a_group"),
            ("counts quiet as a change", broken_reads.CountsQuietAsAChange, "quiet_is_not_a_change_of_membership"),
            ("mutes outsiders in", broken_reads.MutesOutsidersIn, "quiet_is_not_a_change_of_membership"),
            ("forgets quiet", broken_reads.ForgetsQuiet, "a_member_is_quiet_until_the_noted_time"),
            (
                "miscounts after a removal",
                broken_reads.MiscountsAfterARemoval,
                "each_change_raises_the_version_with_it",
            ),
            ("names the role before", broken_reads.NamesTheRoleBefore, "each_change_raises_the_version_with_it"),
            ("lists by arrival", broken_reads.ListsByArrival, "all_memberships_of_a_chat_are_as_of_now"),
            ("lists without roles", broken_reads.ListsWithoutRoles, "all_memberships_of_a_chat_are_as_of_now"),
            ("lists no direct chats", broken_reads.ListsNoDirectChats, "the_memberships_of_a_user_are_found_in_time"),
            ("lists chats by length", broken_reads.ListsChatsByLength, "the_memberships_of_a_user_are_found_in_time"),
        )
    },
    "keeps the version": (
        partial(broken.BrokenEngine, store=broken.KeepsTheVersion),
        "each_change_raises_the_version_with_it",
    ),
    "reads the list first": (
        partial(broken.BrokenEngine, roster=broken.ReadsTheListFirst),
        "a_list_of_members_is_never_older_than_its_version",
    ),
    "lists what was joined long ago": (
        partial(broken.BrokenEngine, user_chats=broken_reads.ListsWhatWasJoinedLongAgo),
        "the_chats_that_users_joined_lately_are_found_in_time",
    ),
    "lists nothing that was joined later": (
        partial(broken.BrokenEngine, user_chats=broken_reads.ListsNothingJoinedLater),
        "the_chats_that_users_joined_lately_are_found_in_time",
    ),
    "looks too far": (
        partial(broken.BrokenEngine, delivery_state=broken_reads.LooksTooFar),
        "the_newest_message_is_no_tombstone_and_not_above_the_bound",
    ),
    "hands out the log": (broken_reads.HandsOutTheLog, "who_may_only_look_cannot_write"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_store_is_rejected(name: str) -> None:
    engine, caught_by = BROKEN[name]
    rejected_by = [each for each, promise in PROMISES.items() if not await _keeps(promise, engine)]
    print(f"{name}: rejected by {', '.join(rejected_by)}")
    assert caught_by in rejected_by
    assert len(rejected_by) < len(PROMISES) / 2, "broken beyond its one fault, which proves nothing"


async def test_a_sound_store_is_not_rejected() -> None:
    assert [each for each, promise in PROMISES.items() if not await _keeps(promise, MemoryEngine)] == []


async def _keeps(promise: Promise, engine: Callable[[], StoreEngine]) -> bool:
    """A promise is broken by a failed assertion; any other error would be a fault of the broken store's making."""
    try:
        await keep(promise, engine)
    except (AssertionError, pytest.fail.Exception):
        return False
    return True

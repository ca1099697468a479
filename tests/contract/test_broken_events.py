"""The contract suites reject every broken engine: each of their checks is proved by something that it catches."""

from collections.abc import Awaitable, Callable

import pytest

from tests.contract import broken_events, broken_routing, test_directory, test_event_log, test_event_reader, test_push
from tests.contract.event_engines import E, Suite, keep

Rejection = Callable[[], Awaitable[None]]


def broken(suite: Suite[E], engine: type[E], promise: str) -> tuple[str, Rejection]:
    """An engine that does one thing wrong, and the promise that finds it out."""

    async def found_out() -> None:
        await keep(suite.named(promise), engine)

    return engine.__name__, found_out


_WRITES = test_event_log.SUITE
_READS = test_event_reader.SUITE
_ROUTES = test_directory.SUITE
_PUSHES = test_push.SUITE

BROKEN = (
    broken(_WRITES, broken_events.Reordering, "appended_events_are_stored_in_order_in_the_partition_of_their_key"),
    broken(_WRITES, broken_events.LosingTheLast, "appended_events_are_stored_in_order_in_the_partition_of_their_key"),
    broken(_WRITES, broken_events.Doubling, "writers_at_the_same_time_keep_the_order_within_each_key"),
    broken(_WRITES, broken_events.IgnoringTheKey, "appended_events_are_stored_in_order_in_the_partition_of_their_key"),
    broken(_WRITES, broken_events.DroppingHeaders, "key_value_and_headers_come_back_as_they_were_given"),
    broken(_WRITES, broken_events.AckingFirst, "an_event_is_in_the_log_at_the_moment_append_returns"),
    broken(_WRITES, broken_events.AckingFirst, "a_dead_letter_is_in_the_log_with_the_whole_record_when_write_returns"),
    broken(
        _WRITES,
        broken_events.WritingNoDeadLetter,
        "a_dead_letter_is_in_the_log_with_the_whole_record_when_write_returns",
    ),
    broken(_READS, broken_events.CommittingNothing, "a_new_reader_starts_at_the_committed_offset"),
    broken(_READS, broken_events.HandingToTwo, "a_partition_that_moves_is_revoked_first_and_assigned_afterwards"),
    broken(_READS, broken_events.HandingToTwo, "who_does_not_poll_keeps_its_partitions_from_the_others"),
    broken(_READS, broken_events.StartingAtTheEnd, "a_new_reader_starts_at_the_committed_offset"),
    broken(_READS, broken_events.StartingAtTheEnd, "a_group_that_never_committed_begins_with_the_first_record"),
    broken(_READS, broken_events.StartingAtTheBeginning, "no_record_is_handled_twice_when_revoked_readers_commit"),
    broken(_READS, broken_events.TrustingZombies, "an_expelled_reader_commits_nothing"),
    broken(_READS, broken_events.FencingTooLate, "an_expelled_reader_commits_nothing"),
    broken(
        _READS, broken_events.NeverExpelling, "an_expelled_reader_learns_of_its_loss_at_the_next_poll_and_joins_again"
    ),
    broken(_READS, broken_events.IgnoringSeeks, "after_a_seek_the_next_poll_begins_there"),
    broken(_READS, broken_events.IgnoringPauses, "a_paused_partition_delivers_nothing_until_it_is_resumed"),
    broken(_READS, broken_events.KeepingPauses, "a_partition_that_was_paused_and_given_back_reads_on"),
    broken(_READS, broken_events.NeverLeaving, "a_reader_that_closes_hands_its_partitions_over_at_once"),
    broken(_READS, broken_events.SkippingRecords, "records_come_in_offset_order_and_none_is_left_out"),
    broken(_READS, broken_events.IgnoringTheLimit, "a_poll_returns_no_more_than_its_limit"),
    broken(_READS, broken_events.Oversleeping, "a_poll_waits_for_the_first_record_and_then_returns_it"),
    broken(_ROUTES, broken_routing.FindingTheExpired, "a_registration_is_found_for_its_lifetime_and_not_longer"),
    broken(_ROUTES, broken_routing.RevivingSiblings, "a_living_device_does_not_revive_a_dead_one"),
    broken(_ROUTES, broken_routing.KeepingTheDeadListed, "a_living_device_does_not_revive_a_dead_one"),
    broken(_ROUTES, broken_routing.OnlyExpiring, "a_heartbeat_rebuilds_the_registration_after_a_loss"),
    broken(_ROUTES, broken_routing.DroppingTheUser, "an_unregistered_connection_is_gone_and_its_siblings_stay"),
    broken(
        _ROUTES,
        broken_routing.RevivingTheUnregistered,
        "a_renewal_that_is_applied_after_the_unregistering_changes_nothing",
    ),
    broken(_ROUTES, broken_routing.KeepingTheOldVersion, "a_new_list_replaces_the_old_one_together_with_its_version"),
    broken(_ROUTES, broken_routing.AddingToTheOldList, "a_new_list_replaces_the_old_one_together_with_its_version"),
    broken(_ROUTES, broken_routing.CachingForEver, "cached_members_are_forgotten_after_their_lifetime"),
    broken(_ROUTES, broken_routing.CachingNobody, "an_empty_list_is_not_cached_and_leaves_nothing_old_behind"),
    broken(_ROUTES, broken_routing.ForgettingNothing, "forgotten_members_are_not_found"),
    broken(_PUSHES, broken_routing.DroppingSilently, "a_broken_subscription_says_so_before_and_after_the_loss"),
    broken(_PUSHES, broken_routing.PushingBackwards, "envelopes_arrive_once_and_in_the_order_of_their_publication"),
    broken(_PUSHES, broken_routing.PushingTwice, "envelopes_arrive_once_and_in_the_order_of_their_publication"),
    broken(_PUSHES, broken_routing.HearingGhosts, "each_gateway_gets_its_own_envelopes_and_silence_is_reported"),
    broken(_PUSHES, broken_routing.StayingSubscribed, "after_unsubscribe_the_receiver_hears_nothing"),
    broken(_PUSHES, broken_routing.SubscribingLater, "an_envelope_published_after_subscribe_returned_arrives_whole"),
)


@pytest.mark.parametrize("found_out", [pytest.param(found_out, id=name) for name, found_out in BROKEN])
async def test_the_contract_rejects(found_out: Rejection) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await found_out()

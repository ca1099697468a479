"""The system with one rule taken out, once per rule. A check that notices none of them would prove nothing.

A mutant replaces named functions of the real code for the length of a schedule. It must be caught within `budget`
seeds of its profile; `seriatim simulate --mutant all` shows by which invariant.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from seriatim.simulation import more_removed_rules as more
from seriatim.simulation import removed_rules as rules
from seriatim.simulation.removed_rules import Patch


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """`hole`: the story of delivery.md section 1 that it retells."""

    name: str
    removes: str
    hole: str
    patches: Callable[[], Sequence[Patch]]
    profile: str = "mixed"
    budget: int = 2000

    @contextmanager
    def apply(self) -> Iterator[None]:
        before: list[Patch] = []
        try:
            for owner, name, replacement in self.patches():
                before.append((owner, name, getattr(owner, name)))
                setattr(owner, name, replacement)
            yield
        finally:
            for owner, name, original in reversed(before):
                setattr(owner, name, original)


_ALL = (
    Mutant(
        name="reader-ignores-holes",
        removes="readers stop at the first missing slot",
        hole="H1",
        patches=rules.reader_ignores_holes,
        profile="store",
    ),
    Mutant(
        name="no-sealing",
        removes="a hole that stays open is closed with a tombstone",
        hole="H1",
        patches=rules.no_sealing,
        profile="store",
    ),
    Mutant(
        name="refused-seal-fails-its-reader",
        removes="a hole that cannot be closed now is read again, and ends a page at most",
        hole="H1",
        patches=rules.refused_seal_fails_its_reader,
        profile="store",
    ),
    Mutant(
        name="unconditional-put",
        removes="a slot is written only if it is empty",
        hole="H4",
        patches=rules.unconditional_put,
        profile="store",
    ),
    Mutant(
        name="no-idempotency-key",
        removes="a key that is there means the message is there",
        hole="H7",
        patches=rules.no_idempotency_key,
        profile="network",
    ),
    Mutant(
        name="key-not-bound-to-sender",
        removes="a key answers only the sender who made it",
        hole="H14",
        patches=rules.key_not_bound_to_sender,
        profile="calm",
    ),
    Mutant(
        name="membership-checked-early",
        removes="membership is a condition of the transaction, not of an earlier read",
        hole="H19",
        patches=rules.membership_checked_early,
        profile="members",
    ),
    Mutant(
        name="hit-acked-without-publish",
        removes="a retry is acked only once its message is published",
        hole="H7",
        patches=rules.hit_acked_without_publish,
        profile="events",
    ),
    Mutant(
        name="ack-before-publish",
        removes="no ack above the published mark",
        hole="H7",
        patches=rules.ack_before_publish,
        profile="events",
    ),
    Mutant(
        name="publish-only-own",
        removes="everything below n is published before n",
        hole="H3",
        patches=rules.publish_only_own,
        profile="store",
    ),
    Mutant(
        name="stale-prev-sequence",
        removes="after adopting another owner's mark, our own last message is not the predecessor",
        hole="H2",
        patches=rules.stale_prev_sequence,
        profile="network",
    ),
    Mutant(
        name="no-reconciler",
        removes="chats left unpublished are settled without anyone's retry",
        hole="H8",
        patches=rules.no_reconciler,
        profile="crashes",
    ),
    Mutant(
        name="naive-gateway",
        removes="a push goes out only if the one before it did",
        hole="H2",
        patches=rules.naive_gateway,
        profile="redis",
    ),
    Mutant(
        name="no-tail-probe",
        removes="gateways look for lost last pushes",
        hole="H9",
        patches=rules.no_tail_probe,
        profile="redis",
    ),
    Mutant(
        name="no-look-for-new-chats",
        removes="gateways look for chats that their users have joined",
        hole="H9",
        patches=more.no_look_for_new_chats,
        profile="redis",
    ),
    Mutant(
        name="live-overtakes-sync",
        removes="live messages wait until the sync is through",
        hole="H16",
        patches=rules.live_overtakes_sync,
        profile="network",
    ),
    Mutant(
        name="own-passes-holes",
        removes="an own message in a run of pushes is passed only if the one before it was delivered",
        hole="H18",
        patches=rules.own_passes_holes,
        profile="network",
    ),
    Mutant(
        name="own-ack-advances",
        removes="an own ack does not count as having received what lies below it",
        hole="H18",
        patches=rules.own_ack_advances,
        profile="network",
    ),
    Mutant(
        name="ack-unclamped",
        removes="a watermark is bounded by what was sent and by what is stored",
        hole="H15",
        patches=rules.ack_unclamped,
    ),
    Mutant(
        name="full-buffer-drops",
        removes="a push without room is read back later",
        hole="H17",
        patches=rules.full_buffer_drops,
        profile="slow",
    ),
    Mutant(
        name="unbounded-buffer",
        removes="a full buffer takes nothing more",
        hole="H17",
        patches=rules.unbounded_buffer,
        profile="slow",
    ),
    Mutant(
        name="expire-only-heartbeat",
        removes="every heartbeat registers anew",
        hole="H9",
        patches=rules.expire_only_heartbeat,
        profile="redis",
    ),
    Mutant(
        name="cache-without-version",
        removes="a member list older than the event is not used",
        hole="H11",
        patches=rules.cache_without_version,
        profile="members",
    ),
    Mutant(
        name="skip-senders-devices",
        removes="the sender's other devices get the message too",
        hole="H18",
        patches=rules.skip_senders_devices,
    ),
    Mutant(
        name="commit-before-processing",
        removes="an offset is committed after its record was handled",
        hole="H12",
        patches=rules.commit_before_processing,
        profile="crashes",
    ),
    Mutant(
        name="pause-outlives-assignment",
        removes="a partition that is assigned is not paused, whatever was paused before",
        hole="H12",
        patches=rules.pause_outlives_assignment,
        profile="events",
    ),
    Mutant(
        name="poison-skipped",
        removes="a record that cannot be read is buried before it is passed",
        hole="H13",
        patches=rules.poison_skipped,
    ),
    Mutant(
        name="batch-reversed",
        removes="drafts keep the order in which they came",
        hole="H25",
        patches=more.batch_reversed,
        profile="calm",
    ),
    Mutant(
        name="resolve-assumes-committed",
        removes="after an ambiguous commit the slot itself is asked",
        hole="H1",
        patches=more.resolve_assumes_committed,
        profile="store",
    ),
    Mutant(
        name="reconciler-flushes-unpublished",
        removes="a chat is clean only once everything in it is published",
        hole="H8",
        patches=more.reconciler_flushes_unpublished,
        profile="crashes",
    ),
    Mutant(
        name="deadline-ignored",
        removes="one deadline rules every wait",
        hole="H23",
        patches=more.deadline_ignored,
        profile="events",
    ),
    Mutant(
        name="breaker-never-closes",
        removes="a probe that succeeds closes the breaker",
        hole="H23",
        patches=more.breaker_never_closes,
        profile="events",
    ),
    Mutant(
        name="repair-from-slots-alone",
        removes="a lost counter is rebuilt above everything anyone has seen",
        hole="H5",
        patches=more.repair_from_slots_alone,
        profile="counter",
    ),
    Mutant(
        name="reads-unauthorised",
        removes="only members read",
        hole="H6",
        patches=more.reads_unauthorised,
        profile="members",
    ),
    Mutant(
        name="reads-checked-before",
        removes="membership is checked after the data was read",
        hole="H6",
        patches=more.reads_checked_before,
        profile="churn",
    ),
    Mutant(
        name="acks-dropped",
        removes="an ack is repeated until it is stored, and the highest wins",
        hole="H15",
        patches=more.acks_dropped,
        profile="network",
    ),
    Mutant(
        name="cursor-forgotten-on-removal",
        removes="who comes back to a chat misses nothing on the same connection",
        hole="H11",
        patches=more.cursor_forgotten_on_removal,
        profile="members",
    ),
    Mutant(
        name="slow-never-closed",
        removes="who reads nothing is disconnected after the grace period",
        hole="H17",
        patches=more.slow_never_closed,
        profile="slow",
    ),
    Mutant(
        name="slow-closed-at-once",
        removes="nobody is disconnected as slow before the grace period is over",
        hole="H17",
        patches=more.slow_closed_at_once,
        profile="slow",
    ),
    Mutant(
        name="never-evicts",
        removes="a device has one connection: the newest",
        hole="H10",
        patches=more.never_evicts,
        profile="network",
    ),
    Mutant(
        name="never-unregisters",
        removes="a connection that ends is no longer registered",
        hole="H10",
        patches=more.never_unregisters,
        profile="network",
    ),
    Mutant(
        name="renewal-revives",
        removes="a renewal does not bring back a connection that was unregistered",
        hole="H10",
        patches=more.renewal_revives,
        profile="network",
    ),
    Mutant(
        name="echo-to-origin",
        removes="the connection that sent a message gets its ack, not its echo",
        hole="H18",
        patches=more.echo_to_origin,
        profile="calm",
    ),
    Mutant(
        name="no-list-on-resync",
        removes="a client looks for chats that nobody announced",
        hole="H9",
        patches=more.no_list_on_resync,
        profile="members",
    ),
    Mutant(
        name="cursor-goes-back",
        removes="what a connection was sent stays counted, whatever the store loses",
        hole="H5",
        patches=more.cursor_goes_back,
        profile="restore",
    ),
    Mutant(
        name="ack-without-entry-ignored",
        removes="an ack whose entry was given up is a message to be fetched",
        hole="H18",
        patches=more.ack_without_entry_ignored,
        profile="regret",
    ),
    Mutant(
        name="cursor-before-messages",
        removes="a device stores messages before its cursor moves over them",
        hole="H2",
        patches=more.cursor_before_messages,
        profile="crashes",
    ),
    Mutant(
        name="step-answered-early",
        removes="a send is answered once its step is kept",
        hole="H7",
        patches=more.step_answered_early,
        profile="embedded",
        budget=200,
    ),
    Mutant(
        name="step-ignores-keys",
        removes="a key that is there means the message is there, in one step too",
        hole="H7",
        patches=more.step_ignores_keys,
        profile="embedded",
        budget=200,
    ),
    Mutant(
        name="step-takes-outsiders",
        removes="membership is a condition of the step",
        hole="H19",
        patches=more.step_takes_outsiders,
        profile="embedded",
        budget=200,
    ),
    Mutant(
        name="step-takes-the-unpublished-along",
        removes="a chat with something unpublished goes the long way",
        hole="H3",
        patches=more.step_takes_the_unpublished_along,
        profile="embedded",
        budget=200,
    ),
    Mutant(
        name="step-without-counter",
        removes="the counter row is written with the messages",
        hole="H4",
        patches=more.step_without_counter,
        profile="embedded",
        budget=200,
    ),
    Mutant(
        name="step-reversed",
        removes="drafts of one step keep the order in which they came",
        hole="H25",
        patches=more.step_reversed,
        profile="embedded",
        budget=200,
    ),
    Mutant(
        name="key-ends-early",
        removes="a key lives for the whole of its time, in both ways to commit",
        hole="H20",
        patches=more.key_ends_early,
        profile="embedded",
        budget=200,
    ),
    Mutant(
        name="step-shares-damage",
        removes="a row that cannot be read stops the sends of its own chat only",
        hole="H23",
        patches=more.step_shares_damage,
        profile="embedded",
        budget=200,
    ),
    Mutant(
        name="heads-share-damage",
        removes="a row that cannot be read hides the head of its own chat only",
        hole="H9",
        patches=more.heads_share_damage,
    ),
)

MUTANTS: Mapping[str, Mutant] = {mutant.name: mutant for mutant in _ALL}

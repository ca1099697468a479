"""Stories that cannot take the short way on a data folder, and why not.

There a folder belongs to one process, and a send is one step: judged, numbered, stored and published in one write.
"""

from collections.abc import Mapping

_TWO_WRITERS = "two processes write to one chat, and a data folder belongs to one"
_NO_GAP = "storing and publishing are one write, so nothing can come between them"

ONLY_THE_LONG_WAY: Mapping[str, str] = {
    "test_h1_a_reader_never_passes_a_slot_that_is_still_to_be_filled": _TWO_WRITERS,
    "test_h1_what_readers_have_passed_is_closed_to_a_very_late_commit": _TWO_WRITERS,
    "test_h3_what_is_stored_below_goes_out_first_whoever_stored_it": _TWO_WRITERS,
    "test_h7_a_retry_that_hits_its_key_is_answered_only_once_the_message_is_out": _NO_GAP,
    "test_h8_a_message_goes_out_although_its_process_and_its_sender_are_gone": _NO_GAP,
    "test_h14_nobody_is_acknowledged_for_somebody_elses_message_in_a_race_either": _TWO_WRITERS,
    "test_h22_one_attempt_burns_at_most_its_own_slot": "no slot is allocated before the step that fills it",
    "test_h25_the_order_survives_conflicts_lost_answers_and_stolen_slots": (
        "a step is not repeated in parts: when it fails, all of its drafts are answered with the error"
    ),
}

"""The suites reject every broken store of people and request keys, each by the promise that it breaks."""

from collections.abc import Callable
from functools import partial

import pytest

from seriatim.simulation.stores.accounts import MemoryAccounts
from tests.contract import broken_accounts as broken
from tests.contract import broken_request_keys
from tests.contract.promises import ACCOUNTS, REQUEST_KEYS, Promise, keep, name_of
from tests.contract.store_engines import MemoryEngine, StoreEngine

PROMISES = {name_of(each): each for each in ACCOUNTS.promises + REQUEST_KEYS.promises}

BROKEN: dict[str, tuple[Callable[[], StoreEngine], str]] = {
    **{
        f"answers {operation} before it is durable": (partial(broken.AnswersBeforeDurable, operation), caught_by)
        for operation, caught_by in (
            ("issue_code", "of_concurrent_codes_for_a_phone_one_is_pending"),
            ("count_attempt", "tries_are_counted_up_to_the_limit_and_no_further"),
            ("sign_in", "a_sign_in_spends_the_code_and_creates_session_and_user_at_once"),
            ("open_session", "of_concurrent_sessions_of_one_id_one_is_opened"),
            ("rotate", "of_concurrent_rotations_of_one_digest_one_wins"),
            ("reissue", "a_reissue_replaces_any_digest_and_leaves_no_previous_one"),
            ("revoke", "a_revoked_session_is_found_by_nobody"),
            ("add_user", "a_phone_has_one_user_for_ever"),
            ("rename_user", "a_renamed_user_is_found_as_changed"),
            ("claim", "of_concurrent_claims_of_one_key_one_wins"),
            ("finish", "a_finished_key_answers_with_its_outcome"),
            ("release", "a_released_key_is_as_if_never_used"),
            ("abandon", "an_abandoned_claim_is_taken_over_at_once_by_one"),
        )
    },
    **{
        name: (partial(broken.BrokenEngine, accounts=accounts), caught_by)
        for name, accounts, caught_by in (
            (
                "replaces a pending code",
                broken.ReplacesAPendingCode,
                "of_concurrent_codes_for_a_phone_one_is_pending",
            ),
            ("forgets a spent code", broken.ForgetsASpentCode, "the_last_code_is_found_pending_spent_and_expired"),
            (
                "counts tries in two steps",
                broken.CountsTriesInTwoSteps,
                "tries_are_counted_up_to_the_limit_and_no_further",
            ),
            (
                "counts tries at an expired code",
                broken.CountsTriesAtAnExpiredCode,
                "tries_at_a_spent_code_count_and_at_an_expired_or_unknown_one_do_not",
            ),
            (
                "signs in step by step",
                broken.SignsInStepByStep,
                "a_sign_in_spends_the_code_and_creates_session_and_user_at_once",
            ),
            ("leaves the code pending", broken.LeavesTheCodePending, "only_the_pending_code_signs_in"),
            ("takes any code", broken.TakesAnyCode, "only_the_pending_code_signs_in"),
            ("takes an expired code", broken.TakesAnExpiredCode, "only_the_pending_code_signs_in"),
            ("spends before it refuses", broken.SpendsBeforeItRefuses, "a_taken_id_is_not_signed_in_with"),
            ("takes a phone twice", broken.TakesAPhoneTwice, "who_finds_the_phone_taken_does_not_sign_in"),
            (
                "ends what it replaces first",
                broken.EndsWhatItReplacesFirst,
                "what_a_sign_in_replaces_goes_with_it_and_stays_if_it_is_refused",
            ),
            (
                "keeps what a sign-in replaces",
                broken.KeepsWhatASignInReplaces,
                "what_a_sign_in_replaces_goes_with_it_and_stays_if_it_is_refused",
            ),
            (
                "keeps what an opened session replaces",
                broken.KeepsWhatAnOpenedSessionReplaces,
                "what_an_opened_session_replaces_goes_with_it_and_stays_if_it_is_refused",
            ),
            ("opens a session twice", broken.OpensASessionTwice, "of_concurrent_sessions_of_one_id_one_is_opened"),
            ("lists the newest first", broken.ListsTheNewestFirst, "the_sessions_of_a_user_are_found_oldest_first"),
            (
                "rotates any digest",
                broken.RotatesAnyDigest,
                "nothing_but_the_current_digest_of_a_living_session_is_rotated",
            ),
            ("rotates in two steps", broken.RotatesInTwoSteps, "of_concurrent_rotations_of_one_digest_one_wins"),
            (
                "rotates an expired session",
                broken.RotatesAnExpiredSession,
                "nothing_but_the_current_digest_of_a_living_session_is_rotated",
            ),
            (
                "a reissue keeps the previous digest",
                broken.ReissueKeepsThePreviousDigest,
                "a_reissue_replaces_any_digest_and_leaves_no_previous_one",
            ),
            (
                "a touch brings back",
                broken.TouchBringsBack,
                "a_session_that_loses_a_race_with_its_revocation_stays_revoked",
            ),
            ("revokes only for the list", broken.RevokesOnlyForTheList, "a_revoked_session_is_found_by_nobody"),
            ("adds a second user", broken.AddsASecondUser, "a_phone_has_one_user_for_ever"),
            ("gives an id away", broken.GivesAnIdAway, "an_id_is_not_given_to_a_second_phone"),
            ("renames into being", broken.RenamesIntoBeing, "an_unknown_user_is_not_renamed_into_being"),
        )
    },
    "a gateway's handle that writes": (
        partial(broken.BrokenEngine, sessions=MemoryAccounts),
        "a_gateways_handle_cannot_write",
    ),
    **{
        name: (partial(broken.BrokenEngine, request_keys=request_keys), caught_by)
        for name, request_keys, caught_by in (
            ("claims in two steps", broken_request_keys.ClaimsInTwoSteps, "of_concurrent_claims_of_one_key_one_wins"),
            ("ignores the scope", broken_request_keys.IgnoresTheScope, "a_key_means_nothing_in_another_scope"),
            (
                "takes over with another body",
                broken_request_keys.TakesOverWithAnotherBody,
                "an_abandoned_claim_is_taken_over_at_once_by_one",
            ),
            (
                "takes over with another resource",
                broken_request_keys.TakesOverWithAnotherResource,
                "a_claim_left_without_outcome_is_taken_over_by_one",
            ),
            (
                "leaves the stale time",
                broken_request_keys.LeavesTheStaleTime,
                "a_claim_left_without_outcome_is_taken_over_by_one",
            ),
            (
                "counts the day from the last claim",
                broken_request_keys.CountsTheDayFromTheLastClaim,
                "a_key_is_free_again_a_day_after_its_first_claim",
            ),
            (
                "abandon releases",
                broken_request_keys.AbandonReleases,
                "an_abandoned_claim_is_taken_over_at_once_by_one",
            ),
            ("releases what is finished", broken_request_keys.ReleasesWhatIsFinished, "a_finished_key_stays_finished"),
            ("never finishes", broken_request_keys.NeverFinishes, "a_finished_key_answers_with_its_outcome"),
        )
    },
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

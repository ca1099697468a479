"""The contract of durability rejects planes that break one promise each."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from seriatim.domain.errors import NotAMember, SeriatimError
from seriatim.domain.message import Draft, Receipt
from seriatim.durability.ingest import Ingest
from seriatim.ports.durability import Answer, BackPage, Durability, History, PrefixPage
from tests.contract.event_engines import keep
from tests.contract.test_durability import ANN, SUITE, DurabilityEngine


class Breaking(DurabilityEngine):
    """Hands out the real plane with one method spoiled."""

    def plane(self) -> Durability:
        return self.spoil(self.ingest)

    def spoil(self, plane: Ingest) -> Durability:
        raise AssertionError("say what is broken")


class Spoiled:
    def __init__(self, plane: Durability) -> None:
        self.plane = plane

    def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
        self.plane.submit(given, deadline=deadline, answer=answer)

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        return await self.plane.read(user_id, chat_id, after=after, limit=limit, timeout_s=timeout_s)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        await self.plane.acknowledge(user_id, chat_id, sequence=sequence, timeout_s=timeout_s)

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        return await self.plane.heads(chat_ids, timeout_s=timeout_s)

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        return await self.plane.joined(since, timeout_s=timeout_s)


class AckingFirst(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                receipt = Receipt(message_id="msg_hope", sequence=1, created_at="")
                asyncio.get_running_loop().call_soon(answer, receipt)
                self.plane.submit(given, deadline=deadline, answer=lambda outcome: None)

        return Plane(plane)


class AnsweringTwice(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                def twice(outcome: Receipt | SeriatimError) -> None:
                    answer(outcome)
                    asyncio.get_running_loop().call_soon(answer, outcome)

                self.plane.submit(given, deadline=deadline, answer=twice)

        return Plane(plane)


class AnsweringNever(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                self.plane.submit(given, deadline=deadline + 60, answer=answer)

        return Plane(plane)


class AnsweringFromWithin(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                answer(NotAMember("at once"))

        return Plane(plane)


class Reordering(Breaking):
    held: Draft | None = None

    def spoil(self, plane: Ingest) -> Durability:
        engine = self

        class Plane(Spoiled):
            def submit(self, given: Draft, *, deadline: float, answer: Answer) -> None:
                if engine.held is None:
                    engine.held = given
                    loop = asyncio.get_running_loop()
                    loop.call_later(0.05, lambda: plane.submit(given, deadline=deadline, answer=answer))
                else:
                    plane.submit(given, deadline=deadline, answer=answer)

        return Plane(plane)


class ReadingForAnyone(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
                return await self.plane.read(ANN, chat_id, after=after, limit=limit, timeout_s=timeout_s)

        return Plane(plane)


class BelievingCursors(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        class Plane(Spoiled):
            async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
                page = await self.plane.read(user_id, chat_id, after=after, limit=limit, timeout_s=timeout_s)
                return page if page.messages else PrefixPage(messages=(), through=after, has_more=False)

        return Plane(plane)


class BelievingAcks(Breaking):
    def spoil(self, plane: Ingest) -> Durability:
        engine = self

        class Plane(Spoiled):
            async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
                engine.store.put_watermark(user_id, chat_id, sequence)

        return Plane(plane)


# --- history ----------------------------------------------------------------------------------------------------------


class BreakingHistory(DurabilityEngine):
    """Asks the real plane for something else than it was asked for, or shows something else than it got."""

    def history(self) -> History:
        engine = self

        class Spoiled:
            async def read_back(
                self, user_id: str, chat_id: str, *, before: int, after: int, limit: int, timeout_s: float
            ) -> BackPage:
                asker, end = engine.asked(user_id, chat_id, before)
                page = await engine.ingest.read_back(
                    asker, chat_id, before=end, after=after, limit=limit, timeout_s=timeout_s
                )
                return engine.shown(page, limit)

        return Spoiled()

    def asked(self, user_id: str, chat_id: str, before: int) -> tuple[str, int]:
        return user_id, before

    def shown(self, page: BackPage, limit: int) -> BackPage:
        return page


class ShowingHistoryToAnyone(BreakingHistory):
    def asked(self, user_id: str, chat_id: str, before: int) -> tuple[str, int]:
        return ANN, before


class CheckingOnlyBeforeTheRead(BreakingHistory):
    def asked(self, user_id: str, chat_id: str, before: int) -> tuple[str, int]:
        return ANN if user_id in self.store.members(chat_id) else user_id, before


class BelievingTheStoredMark(BreakingHistory):
    """The counter row lags behind what was acknowledged."""

    def asked(self, user_id: str, chat_id: str, before: int) -> tuple[str, int]:
        row = self.store.counters.get(chat_id)
        return user_id, min(before, row.published_through + 1) if row else before


class ShowingTheOldestFirst(BreakingHistory):
    def shown(self, page: BackPage, limit: int) -> BackPage:
        return BackPage(messages=page.messages[::-1], has_more=page.has_more)


class PromisingMore(BreakingHistory):
    def shown(self, page: BackPage, limit: int) -> BackPage:
        return BackPage(messages=page.messages, has_more=len(page.messages) == limit)


BROKEN: Mapping[type[DurabilityEngine], str] = {
    AckingFirst: "a_receipt_means_stored_and_published",
    AnsweringTwice: "every_draft_is_answered_once_by_its_deadline_and_never_from_within",
    AnsweringNever: "every_draft_is_answered_once_by_its_deadline_and_never_from_within",
    AnsweringFromWithin: "every_draft_is_answered_once_by_its_deadline_and_never_from_within",
    Reordering: "drafts_of_one_chat_keep_their_order",
    ReadingForAnyone: "members_read_the_stable_prefix_and_others_nothing",
    BelievingCursors: "a_cursor_that_nobody_was_given_is_led_back",
    BelievingAcks: "watermarks_rise_up_to_the_newest_message_for_members_only",
    ShowingHistoryToAnyone: "history_shows_the_newest_between_two_bounds_to_members_only",
    ShowingTheOldestFirst: "history_shows_the_newest_between_two_bounds_to_members_only",
    PromisingMore: "history_shows_the_newest_between_two_bounds_to_members_only",
    BelievingTheStoredMark: "history_shows_what_was_acknowledged_a_moment_ago",
    CheckingOnlyBeforeTheRead: "who_is_removed_during_a_read_is_shown_nothing",
}


@pytest.mark.parametrize("engine", BROKEN, ids=lambda engine: engine.__name__)
async def test_the_contract_rejects(engine: type[DurabilityEngine]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await keep(SUITE.named(BROKEN[engine]), engine)

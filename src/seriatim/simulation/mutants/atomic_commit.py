"""Mutants of the atomic commit: sends that are judged, numbered, stored and published in one transaction."""

import asyncio
from collections.abc import Sequence

from seriatim.domain.errors import RowUnreadable, SeriatimError
from seriatim.durability import atomic_commit
from seriatim.durability.atomic_commit import AtomicCommitter
from seriatim.ports.atomic_store import AtomicTransaction
from seriatim.simulation.mutants.mutant import Patch, removes
from seriatim.simulation.stores.atomic_store import MemoryAtomicTransaction


@removes("a send is answered once its transaction is committed", hole="H7", profile="embedded", seeds=200)
def step_answered_early() -> Sequence[Patch]:
    original = AtomicCommitter._commit

    def commit(
        self: AtomicCommitter, batch: atomic_commit._CommitBatch, transaction: AtomicTransaction | SeriatimError
    ) -> None:
        original(self, batch, transaction)
        for pending, outcome in zip(batch.drafts, batch.outcomes, strict=False):
            asyncio.get_running_loop().call_soon(pending.answer, outcome)

    return [(AtomicCommitter, "_commit", commit)]


@removes(
    "a key that is there means the message is there, in an atomic commit too", hole="H7", profile="embedded", seeds=200
)
def step_ignores_keys() -> Sequence[Patch]:
    return [(atomic_commit, "expired", lambda key, now_s: True)]


@removes("membership is a condition of the atomic commit", hole="H19", profile="embedded", seeds=200)
def step_takes_outsiders() -> Sequence[Patch]:
    return [(MemoryAtomicTransaction, "is_member", lambda self, chat_id, user_id: True)]


@removes(
    "a send to a chat with something unpublished goes through the pipeline", hole="H3", profile="embedded", seeds=200
)
def step_takes_the_unpublished_along() -> Sequence[Patch]:
    return [(atomic_commit, "_chat", lambda counter: None if counter is None else atomic_commit._Chat(counter))]


@removes("the counter row is written with the messages", hole="H4", profile="embedded", seeds=200)
def step_without_counter() -> Sequence[Patch]:
    return [(atomic_commit._BatchWriter, "finish", lambda self: None)]


@removes("drafts of one atomic commit keep the order in which they came", hole="H25", profile="embedded", seeds=200)
def step_reversed() -> Sequence[Patch]:
    original = AtomicCommitter._commit

    def commit(
        self: AtomicCommitter, batch: atomic_commit._CommitBatch, transaction: AtomicTransaction | SeriatimError
    ) -> None:
        batch.drafts.reverse()
        original(self, batch, transaction)

    return [(AtomicCommitter, "_commit", commit)]


@removes("a row that cannot be read stops the sends of its own chat only", hole="H23", profile="embedded")
def step_shares_damage() -> Sequence[Patch]:
    def leave(self: atomic_commit._BatchWriter, chat_id: str, error: RowUnreadable) -> None:
        raise error

    return [(atomic_commit._BatchWriter, "_leave", leave)]

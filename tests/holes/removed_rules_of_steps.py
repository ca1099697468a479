"""The rules that sends in one step keep by code of their own, each as the patch that takes it out."""

import pytest

from seriatim.domain import limits
from seriatim.durability.atomic_commit import AtomicCommitter, _CommitBatch
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore, EmbeddedAtomicTransaction
from seriatim.engines.embedded.storage.writer import Writer
from seriatim.ports.atomic_store import AtomicTransaction


def any_counter_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """H4: also one that is below the slots of its chat."""
    patch.setattr(EmbeddedAtomicStore, "_trusts", lambda self, chat_id, counter: True)


def a_step_checks_no_membership(patch: pytest.MonkeyPatch) -> None:
    """H19, H21."""
    patch.setattr(EmbeddedAtomicTransaction, "is_member", lambda self, chat_id, user_id: True)


def the_disk_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """H23: a deadline that passes during a sync brings no answer."""
    patch.setattr(Writer, "_watch", lambda self, loop, deadline: None)


def steps_begin_however_late(patch: pytest.MonkeyPatch) -> None:
    """H23."""
    patch.setattr(limits, "ATTEMPT_ROOM_S", 0.0)


def steps_decide_the_last_first(patch: pytest.MonkeyPatch) -> None:
    """H25."""
    decide = AtomicCommitter._decide

    def backwards(self: AtomicCommitter, company: _CommitBatch, step: AtomicTransaction) -> None:
        company.drafts.reverse()
        decide(self, company, step)

    patch.setattr(AtomicCommitter, "_decide", backwards)

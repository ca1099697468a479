"""`seriatim trace` says step by step how far a message came, where it stopped, and never what people wrote."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import main
from seriatim.domain.message import Sealed
from seriatim.domain.times import iso
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.ports.event_log import MESSAGES, Partition
from seriatim.runtime.server.health import FANOUT_GROUP
from tests.unit.operations.populated_store import ANN, BOB, CID, GROUP, TOPICS
from tests.unit.operations.violations import Rows, slot


def run(data: Path, *arguments: str, chat: str = GROUP) -> Result:
    return CliRunner().invoke(main, ["trace", "--data", str(data), "--chat", chat, *arguments])


def steps(result: Result) -> dict[str, bool | None]:
    return {step["name"]: step["done"] for step in json.loads(result.stdout)["steps"]}


def changed(data: Path, change: Callable[[Rows], None]) -> Path:
    disk = Disk(data / "store", create=False)
    change(Rows(disk))
    disk.close()
    return data


def event_of(populated: Rows, sequence: int) -> tuple[Partition, int]:
    key = list(populated.events_of(MESSAGES, GROUP))[sequence - 1]
    number = next(n for n in range(TOPICS[MESSAGES]) if key.startswith(rows.events_prefix(Partition(MESSAGES, n))))
    return Partition(MESSAGES, number), rows.last_number(key)


def handled_through(sequence: int) -> Callable[[Rows], None]:
    """Fanout has committed everything up to this message of the group."""

    def change(populated: Rows) -> None:
        partition, offset = event_of(populated, sequence)
        populated.put(rows.offset_key(FANOUT_GROUP, partition), rows.NUMBER.encode(offset + 1))

    return change


def test_a_message_that_went_all_the_way_is_followed_to_its_members(populated: Path) -> None:
    result = run(changed(populated, handled_through(5)), "--sequence", "5")
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert lines["allocated"].split()[1] == "yes"
    assert f"by {ANN}, 15 bytes of text/plain" in lines["stored"]
    assert "messages.persisted/" in lines["published"]
    assert "at offset" in lines["published"]
    assert f"{FANOUT_GROUP} goes on at offset" in result.stdout
    assert lines[BOB].split()[2:4] == ["yes", "5"]
    assert lines[CID].split()[-1] == "no"
    assert "2 of 3 members have not said that they have it" in result.stdout


def test_what_people_wrote_is_never_shown(populated: Path) -> None:
    for arguments in (("--sequence", "1"), ("--sequence", "1", "--json")):
        assert "secret" not in run(populated, *arguments).output


def test_it_is_found_by_the_id_of_its_sender_too(populated: Path) -> None:
    disk = Disk(populated / "store", create=False)
    key = Rows(disk).message(GROUP, 3).client_message_id
    disk.close()
    found = json.loads(run(populated, "--client-message-id", key.upper(), "--json").stdout)
    assert (found["sequence"], found["steps"][2]["done"]) == (3, True)
    unknown = run(populated, "--client-message-id", "5a0c2d4e-0000-4000-8000-000000000000")
    assert unknown.exit_code == 1
    assert "more than 7 days ago" in unknown.stdout


def test_a_message_that_fanout_has_not_come_to_is_not_yet_fanned_out(populated: Path) -> None:
    result = run(changed(populated, handled_through(4)), "--sequence", "5", "--json")
    assert result.exit_code == 1
    assert steps(result) == {"chat": True, "allocated": True, "stored": True, "published": True, "fanned out": False}
    assert "lag" in json.loads(result.stdout)["advice"]


def test_a_message_whose_event_is_missing_is_not_published_unless_the_log_forgot_it(populated: Path) -> None:
    def lose_event(rows_of: Rows) -> None:
        rows_of.drop(list(rows_of.events_of(MESSAGES, GROUP))[-1])

    changed(populated, lose_event)
    assert steps(run(populated, "--sequence", "5", "--json"))["published"] is None
    changed(populated, lambda rows_of: rows_of.change_standing(GROUP, published_through=4))
    result = run(populated, "--sequence", "5", "--json")
    assert steps(result)["published"] is False
    assert result.exit_code == 1


def test_a_tombstone_an_empty_slot_and_an_unallocated_number_are_distinguished(populated: Path) -> None:
    def change(rows_of: Rows) -> None:
        tombstone = Sealed(chat_id=GROUP, sequence=3, created_at=iso(0))
        rows_of.put(slot(GROUP, 3), rows.encode_slot(tombstone))
        rows_of.drop(slot(GROUP, 4))

    changed(populated, change)
    assert "none ever will" in run(populated, "--sequence", "3").stdout
    assert "nothing is stored" in run(populated, "--sequence", "4").stdout
    beyond = run(populated, "--sequence", "6", "--json")
    assert steps(beyond)["allocated"] is False
    assert beyond.exit_code == 1


def test_a_lost_counter_and_a_chat_that_is_none_are_named(populated: Path) -> None:
    assert "no such chat" in run(populated, "--sequence", "1", chat="chat_nowhere").stdout
    changed(populated, lambda rows_of: rows_of.drop(rows.counter_key(GROUP)))
    assert "seriatim counters repair" in run(populated, "--sequence", "1").stdout


@pytest.mark.parametrize("arguments", [(), ("--sequence", "1", "--client-message-id", "x"), ("--sequence", "0")])
def test_a_question_that_is_none_is_refused(populated: Path, arguments: tuple[str, ...]) -> None:
    assert run(populated, *arguments).exit_code == 2


def test_a_folder_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere", "--sequence", "1")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)

"""`seriatim data` shows what is stored without giving anything away, counts it, and makes room."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import main
from seriatim.domain.account import phone_hash
from seriatim.domain.tokens import refresh_digest
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.ports.event_log import Partition
from seriatim.runtime.tools.data_folder import TABLES
from tests.unit.operations.populated_store import ANN, GROUP, PEOPLE, PHONES
from tests.unit.operations.violations import Rows

CONTENT = "the secret text"
DIGESTS = [refresh_digest(each) for each in (*PEOPLE, "000000")]


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["data", *arguments, "--data", str(data)], color=True)


def shown(data: Path, *arguments: str) -> list[dict[str, object]]:
    result = run(data, "show", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- show -------------------------------------------------------------------------------------------------------------


def test_every_table_is_named_and_a_few_of_its_rows_are_shown(pristine: Path) -> None:
    result = run(pristine, "show")
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stdout.splitlines() if line.partition(":")[0] in TABLES] == list(
        TABLES
    )
    assert "messages: the first 3" in result.stdout
    assert "api_idempotency: none" in result.stdout


def test_every_row_of_every_table_can_be_shown_and_none_gives_a_secret_away(pristine: Path) -> None:
    everything = run(pristine, "show", "--limit", "1000", "--json")
    assert everything.exit_code == 0
    assert len(everything.stdout.splitlines()) == sum(row_counts(pristine).values())
    hidden = [CONTENT, *PHONES.values(), *DIGESTS, *[phone_hash(each) for each in PHONES.values()]]
    assert [each for each in hidden if each in everything.stdout] == []


def test_contents_and_phones_are_shown_on_demand_and_secrets_not_even_then(pristine: Path) -> None:
    everything = run(pristine, "show", "--limit", "1000", "--content", "--phones")
    assert CONTENT in everything.stdout
    assert PHONES[ANN] in everything.stdout
    assert [each for each in DIGESTS if each in everything.stdout] == []


def test_a_dead_letter_and_a_record_that_is_no_event_hide_what_may_be_content(populated: Path) -> None:
    dead_letter: dict[str, object] = {
        "dlq_metadata": {},
        "original_record": {"key": None, "value": "VE9QU0VDUkVU", "headers": []},
    }

    def put(raw: Rows) -> None:
        for topic, value in (("dead_letters", json.dumps(dead_letter).encode()), ("messages.persisted", b"TOPSECRET{")):
            event = rows.EVENT.encode(rows.EventRow(b"chat_x", value, (), 0))
            raw.put(rows.event_key(Partition(topic, 0), 99), event)

    disk = Disk(populated / "store", create=False)
    put(Rows(disk))
    disk.close()
    hidden = run(populated, "show", "events", "--limit", "1000").stdout
    open_ = run(populated, "show", "events", "--limit", "1000", "--content").stdout
    assert ("TOPSECRET" in hidden, "VE9QU0VDUkVU" in hidden) == (False, False)
    assert ("TOPSECRET" in open_, "VE9QU0VDUkVU" in open_) == (True, True)


def test_messages_of_one_chat_come_in_order_from_where_one_asks(pristine: Path) -> None:
    assert [row["sequence"] for row in shown(pristine, "messages", GROUP, "--after", "2", "--limit", "2")] == [3, 4]
    assert [row["sequence"] for row in shown(pristine, "messages", "--chat", GROUP)] == [1, 2, 3, 4, 5]


def test_events_of_one_chat_are_found_in_every_topic(pristine: Path) -> None:
    found = shown(pristine, "events", "--chat", GROUP)
    assert {row["key"] for row in found} == {GROUP}
    assert [row["topic"] for row in found].count("messages.persisted") == 5
    assert [row["topic"] for row in found].count("chats.created") == 1


def test_the_end_of_each_partition_is_shown_with_its_topic_and_number(pristine: Path) -> None:
    ends = {(row["topic"], row["partition"]): row["end"] for row in shown(pristine, "event_ends", "--limit", "1000")}
    events = shown(pristine, "events", "--limit", "1000")
    assert ends == Counter((row["topic"], row["partition"]) for row in events)
    assert len({number for _, number in ends}) > 1


@pytest.mark.parametrize("table", ["chats", "chat_memberships", "chat_counters", "idempotency_keys", "delivery_state"])
def test_rows_of_one_chat_are_all_of_it_and_only_of_it(pristine: Path, table: str) -> None:
    everything = [row for row in shown(pristine, table, "--limit", "1000") if row["chat_id"] == GROUP]
    assert everything
    assert shown(pristine, table, "--chat", GROUP, "--limit", "1000") == everything


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["nonsense"], "there is no table 'nonsense'"),
        (["users", "--chat", GROUP], "users belong to no chat"),
        (["chats", GROUP, "--after", "3"], "--after is a sequence of messages"),
        (["messages", "--after", "3"], "--after needs --chat"),
        (["messages", GROUP, "--chat", GROUP], "give one of them"),
        (["--chat", GROUP], "name a table"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(pristine: Path, arguments: list[str], printed: str) -> None:
    result = run(pristine, "show", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert printed in result.stderr


def test_a_name_with_control_characters_does_not_command_the_terminal(populated: Path) -> None:
    disk = Disk(populated / "store", create=False)
    raw = Rows(disk)
    raw.put(rows.chat_key("x"), raw.raw(rows.chat_key(GROUP)).replace(b"\xaachat_group", b"\xaa\x1b[31m evil"))
    disk.close()
    output = run(populated, "show", "chats").stdout
    assert "evil" in output
    assert "\x1b" not in output


def test_rows_too_wide_for_the_terminal_get_a_line_per_field(pristine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.cli.printing.WIDTH", 60)
    lines = run(pristine, "show", "users").stdout.splitlines()
    assert "user_id: user_ann" in lines
    assert "phone_number: +49*********01" in lines


def test_a_reader_who_stops_early_gets_no_traceback(pristine: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "seriatim.cli.main", "data", "show", "--limit", "1000", "--data", str(pristine)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate()
    assert (process.returncode, stderr) == (0, b"")


# --- stats and compact ------------------------------------------------------------------------------------------------


def test_the_stats_count_every_table_the_largest_chats_and_the_log(pristine: Path) -> None:
    answer = json.loads(run(pristine, "stats", "--json").stdout)
    assert {table: each["rows"] for table, each in answer["tables"].items()} == row_counts(pristine)
    assert [(chat["chat_id"], chat["slots"]) for chat in answer["largest_chats"]] == [
        ("chat_direct", 5),
        ("chat_group", 5),
    ]
    log = {topic["topic"]: (topic["partitions"], topic["written"], topic["kept"]) for topic in answer["topics"]}
    assert log["messages.persisted"] == (4, 10, 10)
    text = run(pristine, "stats").stdout
    assert "format 1" in text
    assert "largest chats" in text


def test_the_stats_tell_what_retention_removed_and_what_a_group_has_not_handled(populated: Path) -> None:
    disk = Disk(populated / "store", create=False)
    raw = Rows(disk)
    first = next(iter(raw.events_of("messages.persisted", GROUP)))
    partition = Partition("messages.persisted", int.from_bytes(first[-12:-8], "big"))
    raw.drop(first)
    raw.put(rows.offset_key("fanout-workers", partition), rows.NUMBER.encode(3))
    disk.close()
    topics = {each["topic"]: each for each in json.loads(run(populated, "stats", "--json").stdout)["topics"]}
    assert topics["messages.persisted"]["kept"] == 9
    assert topics["messages.persisted"]["lag"] == {"fanout-workers": 7}
    assert topics["chats.created"]["lag"] == {}


def test_compacting_frees_what_was_deleted_and_keeps_the_rest(populated: Path) -> None:
    disk = Disk(populated / "store", create=False)
    for number in range(200):
        disk.write({b"Y%03d" % number: number.to_bytes(2, "big") * 5000})
    disk.close()
    disk = Disk(populated / "store", create=False)
    for number in range(200):
        disk.write({b"Y%03d" % number: None})
    disk.close()
    before = row_counts(populated)
    answer = json.loads(run(populated, "compact", "--json").stdout)
    assert answer["bytes_freed"] == answer["bytes_before"] - answer["bytes_after"] > 0
    assert row_counts(populated) == before
    assert "Nothing to free" in run(populated, "compact").stdout


def test_a_folder_in_use_is_not_compacted_and_the_error_says_why(populated: Path) -> None:
    folder = Folder.open(populated)
    try:
        result = run(populated, "compact")
    finally:
        asyncio.run(folder.close())
    assert result.exit_code == 2
    assert "in use by process" in result.stderr
    assert "compacts by itself" in result.stderr


def test_a_folder_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    for command in ("show", "stats", "compact"):
        result = run(tmp_path / "nowhere", command)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "there is no data folder" in result.stderr
    assert not (tmp_path / "nowhere").exists()


def row_counts(data: Path) -> dict[str, int]:
    disk = Disk(data / "store", create=False)
    try:
        return {table: sum(1 for _ in disk.scan(prefix, rows.after(prefix))) for table, prefix in rows.TABLES.items()}
    finally:
        disk.close()

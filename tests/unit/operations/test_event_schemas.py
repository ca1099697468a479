"""Full compatibility, rule by rule: each forbidden change is found, each allowed one is not (S37)."""

import copy
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import main
from seriatim.cli.schemas import FOLDER
from seriatim.operations.event_schemas import check

Json = dict[str, Any]
Change = Callable[[Json], None]

NAME = "message-persisted.v1.json"
OLD: Json = {
    "title": "MessagePersisted payload",
    "type": "object",
    "required": ["chat_id", "sequence", "tags"],
    "properties": {
        "chat_id": {"type": "string"},
        "sequence": {"type": "integer", "minimum": 1},
        "role": {"enum": ["owner", "member"]},
        "priority": {"type": "string", "default": "normal"},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
    },
    "allOf": [{"if": {"required": ["chat_id"]}, "then": {}}],
}


def put(path: str, value: object) -> Change:
    def change(schema: Json) -> None:
        *way, last = path.split("/")
        for step in way:
            schema = schema[step]
        schema[last] = value

    return change


def drop(path: str) -> Change:
    def change(schema: Json) -> None:
        *way, last = path.split("/")
        for step in way:
            schema = schema[step]
        del schema[last]

    return change


def require(*names: str) -> Change:
    return put("required", list(names))


def both(*changes: Change) -> Change:
    def change(schema: Json) -> None:
        for each in changes:
            each(schema)

    return change


def changed(change: Change) -> Json:
    new = copy.deepcopy(OLD)
    change(new)
    return new


FORBIDDEN: dict[str, tuple[Change, str, str]] = {
    "add a required field": (
        both(put("properties/extra", {"type": "string"}), require("chat_id", "sequence", "tags", "extra")),
        "extra",
        "a required field was added",
    ),
    "drop a required field": (
        both(drop("properties/sequence"), require("chat_id", "tags")),
        "sequence",
        "a required field was dropped",
    ),
    "optional becomes required": (require("chat_id", "sequence", "tags", "priority"), "priority", "became required"),
    "required becomes optional": (require("chat_id", "tags"), "sequence", "became optional"),
    "another type": (put("properties/chat_id/type", "integer"), "chat_id", "`type` changed"),
    "a wider type": (put("properties/chat_id/type", ["string", "null"]), "chat_id", "`type` changed"),
    "a narrower type": (put("properties/note/type", "string"), "note", "`type` changed"),
    "a narrower enum": (put("properties/role/enum", ["owner"]), "role", "member was dropped"),
    "a wider enum": (put("properties/role/enum", ["owner", "member", "guest"]), "role", "guest was added"),
    "an enum for free text": (put("properties/chat_id/enum", ["chat_1"]), "chat_id", "listed that were free"),
    "free text for an enum": (put("properties/role", {"type": "string"}), "role", "set free that were listed"),
    "a tighter bound": (put("properties/sequence/minimum", 2), "sequence", "`minimum` changed from 1 to 2"),
    "a looser bound": (drop("properties/sequence/minimum"), "sequence", "`minimum` changed from 1 to nothing"),
    "another default": (put("properties/priority/default", "high"), "priority", "the default changed"),
    "a dropped default": (drop("properties/priority/default"), "priority", "the default changed"),
    "an optional field without default": (put("properties/extra", {"type": "string"}), "extra", "without a default"),
    "a deprecated field": (put("properties/note/deprecated", True), "note", "deprecated"),
    "unknown fields refused": (put("additionalProperties", False), "", "`additionalProperties` changed"),
    "a change inside a list": (
        put("properties/tags/items/properties/name/type", "integer"),
        "tags[].name",
        "`type` changed",
    ),
    "what a list holds": (drop("properties/tags/items"), "tags", "what the list holds"),
    "a changed condition": (put("allOf", [{"if": {}, "then": {"required": ["note"]}}]), "", "dropped or changed"),
    "a condition for all": (put("allOf", [*OLD["allOf"], {"required": ["note"]}]), "", "added for all"),
    "a renamed required field": (
        both(
            drop("properties/chat_id"), put("properties/chat", {"type": "string"}), require("chat", "sequence", "tags")
        ),
        "chat_id",
        "dropped (or renamed)",
    ),
}
ALLOWED: dict[str, Change] = {
    "nothing": lambda schema: None,
    "add an optional field with a default": put("properties/extra", {"type": "string", "default": "x"}),
    "drop an optional field": drop("properties/note"),
    "better words": both(put("title", "A message"), put("properties/note/description", "Says more.")),
    "another order": both(require("tags", "sequence", "chat_id"), put("properties/note/type", ["null", "string"])),
    "a condition for a new type": put("allOf", [*OLD["allOf"], {"if": {"required": ["x"]}, "then": {}}]),
    "a default where there was none": put("properties/note/default", None),
}


@pytest.mark.parametrize("rule", FORBIDDEN)
def test_s37_a_forbidden_change_is_found_and_named(rule: str) -> None:
    change, field, what = FORBIDDEN[rule]
    violations = check({NAME: OLD}, {NAME: changed(change)})
    assert violations, rule
    assert any((each.schema, each.field) == (NAME, field) and what in each.what for each in violations), violations


@pytest.mark.parametrize("rule", ALLOWED)
def test_an_allowed_change_is_let_through(rule: str) -> None:
    assert check({NAME: OLD}, {NAME: changed(ALLOWED[rule])}) == []


def test_a_schema_may_not_vanish_and_a_new_event_may_come() -> None:
    assert [each.what for each in check({NAME: OLD}, {})] == ["removed; the log still holds such events, so it stays"]
    assert check({NAME: OLD}, {NAME: OLD, "message-persisted-v2.v1.json": {"required": ["anything"]}}) == []


def test_a_new_type_of_event_may_be_named_in_the_envelope() -> None:
    old = {"properties": {"event_type": {"enum": ["MessagePersisted"]}}}
    new = {"properties": {"event_type": {"enum": ["MessagePersisted", "MessagePersistedV2"]}}}
    assert check({"event-envelope.v1.json": old}, {"event-envelope.v1.json": new}) == []


def test_the_next_version_may_bring_fields_without_default_and_deprecate_but_break_nothing() -> None:
    following = "message-persisted.v2.json"
    fine = changed(both(put("properties/extra", {"type": "string"}), put("properties/note/deprecated", True)))
    assert check({NAME: OLD}, {NAME: OLD, following: fine}) == []
    broken = changed(require("chat_id"))
    assert [each.schema for each in check({NAME: OLD}, {NAME: OLD, following: broken})] == [following] * 2


# --- the command, in a repository ------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One commit with one schema."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / FOLDER).mkdir(parents=True)
    write(tmp_path, OLD)
    git("init", "--quiet", "--initial-branch=main")
    commit()
    return tmp_path


def write(repository: Path, schema: Json) -> None:
    (repository / FOLDER / NAME).write_text(json.dumps(schema), encoding="utf-8")


def git(*arguments: str) -> None:
    without_config = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *arguments], check=True, capture_output=True, env={**os.environ, **without_config})


def commit() -> None:
    git("add", ".")
    git("-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "--quiet", "--message", "x")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["schemas", "check", *arguments])


def test_a_change_in_the_working_tree_is_compared_with_the_named_commit(repository: Path) -> None:
    assert run("--base", "HEAD").exit_code == 0
    write(repository, changed(FORBIDDEN["a narrower enum"][0]))
    result = run("--base", "HEAD")
    assert result.exit_code == 1
    assert f"{FOLDER}/{NAME}: role: the value member was dropped; old events have it" in result.stdout
    answer = json.loads(run("--base", "HEAD", "--json").stdout)
    assert [each["field"] for each in answer["violations"]] == ["role"]


def test_it_works_from_any_folder_of_the_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(repository, changed(FORBIDDEN["another type"][0]))
    monkeypatch.chdir(repository / FOLDER)
    assert run("--base", "HEAD").exit_code == 1


def test_without_a_base_the_main_branch_of_the_origin_counts_else_the_commit_before(repository: Path) -> None:
    first = run()
    assert (first.exit_code, first.stdout) == (0, "")
    assert "Nothing to compare with" in first.stderr
    write(repository, changed(FORBIDDEN["a tighter bound"][0]))
    commit()
    assert run().exit_code == 1  # the commit before
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert run().exit_code == 1  # we are the main branch: the commit before
    (repository / "more").write_text("x", encoding="utf-8")
    commit()
    assert run().exit_code == 0  # the main branch has the change already
    git("update-ref", "refs/remotes/origin/main", "HEAD~2")
    assert run().exit_code == 1


def test_a_commit_a_folder_or_a_schema_that_is_none_is_said_in_one_line(repository: Path) -> None:
    result = run("--base", "no-such-branch")
    assert (result.exit_code, "there is no commit no-such-branch here" in result.stderr) == (2, True)
    result = run("--folder", "elsewhere", "--base", "HEAD")
    assert (result.exit_code, "there are no schemas in elsewhere" in result.stderr) == (2, True)
    (repository / FOLDER / NAME).write_text("{", encoding="utf-8")
    result = run("--base", "HEAD")
    assert (result.exit_code, f"{NAME} is no schema" in result.stderr) == (2, True)

"""`seriatim keys` lists keys and rotates them, so that tokens of before go on working; their insides stay inside."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import main
from seriatim.domain import limits
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.keys.key_folder import KeyFolder
from tests.support.manual_clock import ManualClock


def run(folder: Path, *arguments: str) -> Result:
    command, *rest = arguments
    return CliRunner().invoke(main, ["keys", command, "--keys", str(folder), *rest])


def made(folder: Path, ago_s: int = 0) -> KeyFolder:
    return KeyFolder.open(folder, create=True, clock=ManualClock(SystemClock().now_ms() - ago_s * 1000))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made(tmp_path / "keys", ago_s=60)
    return tmp_path / "keys"


def listed(folder: Path) -> list[dict[str, object]]:
    found = json.loads(run(folder, "list", "--json").stdout)["keys"]
    assert isinstance(found, list)
    return found


def test_a_rotated_key_signs_and_the_one_before_goes_on_verifying(folder: Path) -> None:
    [old] = listed(folder)
    assert (old["use"], old["halves"], old["may be deleted"]) == ("signs", "both", "no")
    result = run(folder, "rotate")
    assert result.exit_code == 0
    new, before = listed(folder)
    assert result.stdout.splitlines() == [new["key"]]
    assert (new["use"], before["key"], before["use"]) == ("signs", old["key"], "verifies")


def test_a_key_may_be_deleted_once_no_token_of_it_can_live(tmp_path: Path) -> None:
    long_ago = made(tmp_path / "keys", ago_s=3 * limits.KEY_OVERLAP_S)
    long_ago._clock = ManualClock(SystemClock().now_ms() - 2 * limits.KEY_OVERLAP_S * 1000)
    long_ago.rotate()
    run(tmp_path / "keys", "rotate")
    assert [each["may be deleted"] for each in listed(tmp_path / "keys")] == ["no", "no", "yes"]


def test_a_key_made_elsewhere_changes_nothing_here_and_its_public_half_is_enough_to_verify(
    folder: Path, tmp_path: Path
) -> None:
    before = listed(folder)
    out = tmp_path / "out"
    result = run(folder, "rotate", "--out", str(out), "--json")
    kid = json.loads(result.stdout)["key"]
    assert listed(folder) == before
    assert sorted(each.name for each in out.iterdir()) == [f"{kid}.pem", f"{kid}.pub.pem"]
    (out / f"{kid}.pub.pem").rename(folder / f"{kid}.pub.pem")
    staged, signing = listed(folder)
    assert (staged["key"], staged["use"], staged["halves"]) == (kid, "verifies", "public")
    assert (signing["use"], signing["may be deleted"]) == ("signs", "no")
    (out / f"{kid}.pem").rename(folder / f"{kid}.pem")
    assert [each["use"] for each in listed(folder)] == ["signs", "verifies"]


def test_a_folder_of_public_keys_is_listed_as_one_that_cannot_sign(folder: Path, tmp_path: Path) -> None:
    run(folder, "rotate", "--out", str(tmp_path / "out"))
    gateway = tmp_path / "gateway"
    gateway.mkdir(mode=0o700)
    [public] = (tmp_path / "out").glob("*.pub.pem")
    public.rename(gateway / public.name)
    result = run(gateway, "list")
    assert result.exit_code == 0
    assert "No key signs here" in result.stdout


def test_no_half_of_any_key_is_printed(folder: Path, tmp_path: Path) -> None:
    shown = [run(folder, *each).output for each in (("list",), ("rotate",), ("rotate", "--out", str(tmp_path / "o")))]
    assert "BEGIN" not in "".join(shown)


def test_a_folder_without_keys_is_refused_in_one_line_and_not_made(tmp_path: Path) -> None:
    for command in ("list", "rotate"):
        result = run(tmp_path / "nowhere", command)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert not (tmp_path / "nowhere").exists()

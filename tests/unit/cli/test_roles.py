"""The commands of the roles: each has its help, and says what is missing before anything is opened."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import ROLES, main


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("role", ROLES)
def test_each_role_explains_itself_with_the_settings_it_reads(role: str) -> None:
    text = _run(role, "--help").stdout
    assert "Needs" in text
    assert "--roles" not in text
    assert ("--store" in text) == (role != "gateway")
    assert ("--directory" in text) == (role != "ingest")
    assert ("--ingest" in text) == (role in ("gateway", "api"))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_alone_is_refused_on_the_embedded_store_and_makes_no_folder(role: str, tmp_path: Path) -> None:
    refused = _run(role)
    assert refused.exit_code == 2
    assert "cannot be split on embedded:" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_needs_engines_that_processes_can_share() -> None:
    refused = _run("cluster")
    assert refused.exit_code == 2
    assert "several processes cannot share a folder" in refused.stderr

"""`seriatim config` and the command itself: mistakes are reported at once, and what is not needed is not imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import COMMANDS, main
from seriatim.runtime.config.settings import all_settings
from seriatim.runtime.config.sources import documentation


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def test_fine_settings_are_called_fine() -> None:
    checked = _run("config", "check", "--port", "0", SERIATIM_ENV="test")
    assert checked.exit_code == 0
    assert f"2 given, {len(all_settings()) - 2} left" in checked.stdout


def test_all_mistakes_are_reported_at_once_on_stderr_with_exit_code_2() -> None:
    Path("bad.toml").write_text('hots = "x"', encoding="utf-8")
    checked = _run("config", "check", "--config", "bad.toml", "--port", "x", SERIATIM_ENV="prod")
    assert checked.exit_code == 2
    assert checked.stdout == ""
    assert [line.split(" ")[1] for line in checked.stderr.splitlines()] == ["hots", "port", "otp_sender"]


def test_a_variable_that_looks_like_a_slip_is_warned_about() -> None:
    checked = _run("config", "check", SERIATIM_PROT="1")
    assert checked.exit_code == 0
    assert checked.stderr == "Warning: SERIATIM_PROT: there is no such setting; did you mean SERIATIM_PORT?\n"


def test_show_prints_every_value_and_where_it_came_from() -> None:
    shown = _run("config", "show", "--port", "1", SERIATIM_ORIGINS="https://a.example,https://b.example")
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert list(lines) == [setting.name for setting in all_settings()]
    assert lines["port"].split() == ["port", "1", "flag", "--port"]
    assert "https://a.example, https://b.example" in lines["origins"]
    assert lines["env"].endswith("default")


def test_show_as_json_keeps_types_and_sources() -> None:
    shown = json.loads(_run("config", "show", "--json", SERIATIM_ORIGINS="https://a.example").stdout)
    assert shown["port"] == {"value": 8080, "source": "default"}
    assert shown["origins"] == {"value": ["https://a.example"], "source": "environment variable SERIATIM_ORIGINS"}
    assert shown["otp_log_in_prod"]["value"] is False


def test_doc_prints_the_page_about_settings() -> None:
    assert _run("config", "doc").stdout == documentation()


def test_help_lists_every_command_and_every_setting() -> None:
    assert [name for name in COMMANDS if f"  {name} " not in _run("--help").stdout] == []
    served = _run("serve", "--help").stdout
    assert [setting.flag for setting in all_settings() if setting.flag not in served] == []


def test_an_unknown_command_is_a_mistake_on_the_command_line() -> None:
    assert _run("sreve").exit_code == 2


def test_a_command_imports_neither_the_simulator_nor_the_server_unless_it_needs_them() -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from seriatim.cli.main import main\n"
        "CliRunner().invoke(main, ['serve', '--port', 'x'])\n"
        "print([name for name in sys.modules if name.startswith(('seriatim.simulation', 'rich', 'rocksdict'))])\n"
    )
    loaded = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout == "[]\n"

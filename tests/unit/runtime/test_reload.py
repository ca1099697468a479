"""SIGHUP applies what can be applied, names what cannot, and changes nothing for settings with a mistake."""

import logging
from collections.abc import Mapping

import msgspec
import pytest

from seriatim.runtime.config.settings import Settings
from seriatim.runtime.config.sources import SettingsError, load
from seriatim.runtime.server.reload import SettingsReload

BEFORE = load({"data": "d", "env": "dev"}, {}).settings


def _line(caplog: pytest.LogCaptureFixture) -> Mapping[str, object]:
    (record,) = caplog.records
    return {"event": record.getMessage(), **record.fields}  # type: ignore[attr-defined]


def test_a_new_log_level_is_applied_and_a_new_port_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seriatim")
    levels: list[str] = []
    after = msgspec.structs.replace(BEFORE, log_level="debug", port=BEFORE.port + 1)
    SettingsReload(BEFORE, lambda: after, {"log_level": lambda found: levels.append(found.log_level)}).reload()
    assert levels == ["debug"]
    line = _line(caplog)
    assert (line["event"], line["applied"], line["not_applied"]) == ("settings_reread", ["log_level"], ["port"])


def test_settings_with_a_mistake_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def mistaken() -> Settings:
        raise SettingsError(["log_level: loud is not a level"])

    levels: list[str] = []
    SettingsReload(BEFORE, mistaken, {"log_level": lambda found: levels.append(found.log_level)}).reload()
    assert levels == []
    assert _line(caplog)["event"] == "settings_not_reread"

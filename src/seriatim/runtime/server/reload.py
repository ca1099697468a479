"""SIGHUP: reads the settings again and applies those that can change while the server runs. The others are named."""

import logging
from collections.abc import Callable, Mapping

import msgspec

from seriatim.runtime.config.settings import Settings
from seriatim.runtime.config.sources import SettingsError
from seriatim.runtime.telemetry.logs import log_event

_log = logging.getLogger("seriatim")
ReadSettings = Callable[[], Settings]
Apply = Callable[[Settings], None]


class SettingsReload:
    """`appliers`: by the name of a setting, the function that applies its new value. Mistakes change nothing."""

    def __init__(self, settings: Settings, read: ReadSettings, appliers: Mapping[str, Apply]) -> None:
        self._settings = settings
        self._read = read
        self._appliers = appliers

    def reload(self) -> None:
        try:
            found = self._read()
        except SettingsError as error:
            step = "nothing was changed; mend the settings and send SIGHUP again"
            log_event(_log, logging.ERROR, "settings_not_reread", reason=str(error), next_step=step)
            return
        changed = [name for name in Settings.__struct_fields__ if getattr(found, name) != getattr(self._settings, name)]
        applied = [name for name in changed if name in self._appliers]
        waiting = [name for name in changed if name not in self._appliers]
        for name in applied:
            self._appliers[name](found)
            self._settings = _with(self._settings, name, found)
        step = "restart this process to apply the others" if waiting else "nothing"
        log_event(_log, logging.INFO, "settings_reread", applied=applied, not_applied=waiting, next_step=step)


def _with(settings: Settings, name: str, found: Settings) -> Settings:
    return msgspec.structs.replace(settings, **{name: getattr(found, name)})

"""Where settings come from: defaults, a TOML file, the environment, flags. Later sources override earlier ones.

Every mistake is found in one go, and names the setting, the place it was made in, and what would be allowed.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from seriatim.runtime.config.settings import Setting, Settings, all_settings
from seriatim.runtime.config.validation import SettingProblem, validate

FILE = Path("seriatim.toml")
FILE_VARIABLE = "SERIATIM_CONFIG"
PREFIX = "SERIATIM_"


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, where each came from, and warnings that prevent no start."""

    settings: Settings
    sources: Mapping[str, str]
    warnings: Sequence[str]


class SettingsError(Exception):
    """All that is wrong, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


Validator = Callable[[Settings], Iterable[SettingProblem]]


def load(
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    validator: Validator = validate,
) -> LoadedSettings:
    """`flags` are texts by setting, None where not given. `validator` finds what does not fit together; that of a tool
    which serves no clients asks for less. Raises `SettingsError`.
    """
    reading = _SettingsReader()
    for setting in all_settings():
        reading.known[setting.name] = setting
        reading.take(setting, setting.default, "default")
    reading.file(file if file is not None else _given_file(environ))
    reading.environment(environ)
    for name, text in flags.items():
        if text is not None:
            reading.text(reading.known[name], text, f"flag {reading.known[name].flag}")
    return reading.finished(validator)


def _given_file(environ: Mapping[str, str]) -> Path | None:
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    return FILE if FILE.exists() else None


class _SettingsReader:
    def __init__(self) -> None:
        self.known: dict[str, Setting] = {}
        self._values: dict[str, object] = {}
        self._sources: dict[str, str] = {}
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def file(self, path: Path | None) -> None:
        if path is None:
            return
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self._problems.append(f"the settings file {path} cannot be read: {reason}")
            return
        for name, value in found.items():
            if name in self.known:
                self._convert(self.known[name], value, f"file {path}", text=repr(value))
            else:
                self._problems.append(f"{name} (file {path}): there is no such setting{self._nearest(name)}")

    def environment(self, environ: Mapping[str, str]) -> None:
        for variable, text in sorted(environ.items()):
            name = variable.removeprefix(PREFIX).lower()
            if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
                continue
            if name in self.known:
                self.text(self.known[name], text, f"environment variable {variable}")
            else:
                # Not refused: orchestrators make variables out of the names of services, and "seriatim" may be one.
                self._warnings.append(f"{variable}: there is no such setting{self._nearest(name, PREFIX)}")

    def text(self, setting: Setting, text: str, source: str) -> None:
        value: object = text
        if setting.is_list:
            value = [part.strip() for part in text.split(",") if part.strip()]
        elif isinstance(setting.default, bool):
            value = {"true": True, "false": False}.get(text.lower(), text)
        elif isinstance(setting.default, int) and re.fullmatch(r"-?[0-9]{1,9}", text):
            value = int(text)
        self._convert(setting, value, source, text=repr(text))

    def _convert(self, setting: Setting, value: object, source: str, *, text: str) -> None:
        try:
            self.take(setting, msgspec.convert(value, setting.kind), source)
        except msgspec.ValidationError:
            self._problems.append(f"{setting.name} ({source}): {_masked(text)} is not {setting.takes}")

    def take(self, setting: Setting, value: object, source: str) -> None:
        self._values[setting.name] = value
        self._sources[setting.name] = source

    def finished(self, validator: Validator) -> LoadedSettings:
        settings = msgspec.convert(self._values, Settings)
        problems = [*self._problems, *(f"{w.name} ({self._sources[w.name]}): {w.why}" for w in validator(settings))]
        if problems:
            raise SettingsError(problems)
        return LoadedSettings(settings=settings, sources=self._sources, warnings=self._warnings)

    def _nearest(self, name: str, prefix: str = "") -> str:
        near = difflib.get_close_matches(name, self.known, n=1)
        if not near:
            return "; `seriatim config doc` lists them all"
        return f"; did you mean {prefix + near[0].upper() if prefix else near[0]}?"


# --- settings as people read them -------------------------------------------------------------------------------------


def format_value(value: object) -> str:
    """A value as text, without the passwords that URLs may carry."""
    if isinstance(value, tuple):
        return ", ".join(format_value(each) for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return _masked(str(value))


def format_setting(setting: Setting, value: object) -> str:
    return "***" if setting.secret and value else format_value(value)


def _masked(text: str) -> str:
    return _OPTION.sub(r"\1***", _PASSWORD.sub(r"\1***@", text))


_PASSWORD = re.compile(r"(//[^/@:\s]*:)[^/@\s]+@")
_OPTION = re.compile(r"([?&][^=&\s]*(?:password|secret|token|pem)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE)


def documentation() -> str:
    """All settings as a page of Markdown: docs/settings.md is this text."""
    lines = [
        "# Settings",
        "",
        "Written by `seriatim config doc`. A setting is taken from the first of these that has it: a flag of",
        "`seriatim serve`, the environment, the file named by `--config` or `SERIATIM_CONFIG` (else `seriatim.toml` in",
        "the current folder), the default. `seriatim config check` finds every mistake at once; `seriatim config show`",
        "shows where each value came from. In a file lists are TOML lists; elsewhere they are separated by commas.",
        "",
        "| setting | environment and flag | takes | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for each in all_settings():
        takes = f"{each.takes}, in {each.unit}" if each.unit else each.takes
        default = f"`{format_value(each.default)}`" if format_value(each.default) else "empty"
        lines.append(f"| `{each.name}` | `{each.variable}` `{each.flag}` | {takes} | {default} | {each.description} |")
    return "\n".join(lines) + "\n"

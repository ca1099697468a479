"""Settings as options of a command: every setting is a flag, and all mistakes of all sources are reported together."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from seriatim.runtime.config.settings import all_settings
from seriatim.runtime.config.sources import LoadedSettings, SettingsError, Validator, format_value, load
from seriatim.runtime.config.validation import validate

USAGE = 2  # exit code: mend the settings, the folder or the command line, then try again
Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(only: Sequence[str] | None = None) -> Callable[[Command], Command]:
    """`--config` and the flags of these settings, or of all. The command gets them as texts, None if not given."""

    def decorate(command: Command) -> Command:
        for setting in reversed(all_settings()):
            if only is None or setting.name in only:
                default = format_value(setting.default) or "none"
                help_text = f"{setting.description.replace('`', '')}  [default: {default}]"
                metavar = (
                    setting.takes.removeprefix("one of ").replace(", ", "|") if "one of" in setting.takes else None
                )
                command = click.option(
                    setting.flag, setting.name, metavar=metavar or setting.name.upper(), help=help_text
                )(command)
        return click.option(
            "--config", "file", type=click.Path(path_type=Path), help="TOML file with settings, else ./seriatim.toml."
        )(command)

    return decorate


def load_or_exit(file: Path | None, flags: dict[str, str | None], *, validator: Validator = validate) -> LoadedSettings:
    """The settings. What is wrong with them goes to stderr, one line each, and ends the program."""
    try:
        loaded = load(flags, os.environ, file=file, validator=validator)
    except SettingsError as error:
        for problem in error.problems:
            print_error(problem)
        sys.exit(USAGE)
    for warning in loaded.warnings:
        print_error(warning, kind="Warning")
    return loaded


def exit_with_error(reason: object) -> NoReturn:
    """One clear line and an exit code: what an operator can mend needs no traceback."""
    print_error(reason)
    sys.exit(USAGE)


def print_error(text: object, *, kind: str = "Error") -> None:
    click.echo(f"{kind}: {text}", err=True)

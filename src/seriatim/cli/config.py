"""`seriatim config`: what the settings are, where they came from, and what is wrong with them."""

from pathlib import Path

import click
import msgspec

from seriatim.cli.options import load_or_exit, settings_options
from seriatim.runtime.config.settings import Setting, all_settings
from seriatim.runtime.config.sources import documentation, format_setting, format_value


@click.group()
def config() -> None:
    """Check, show and document the settings."""


@config.command()
@settings_options()
def check(file: Path | None, **flags: str | None) -> None:
    """Find every mistake in file, environment and flags.

    Exit code: 0 the server would start with these settings, 2 it would not.
    """
    loaded = load_or_exit(file, flags)
    given = sum(source != "default" for source in loaded.sources.values())
    click.echo(f"The settings are fine: {given} given, {len(loaded.sources) - given} left at their defaults.")


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@settings_options()
def show(file: Path | None, as_json: bool, **flags: str | None) -> None:
    """Print every setting, and where it came from. Passwords are hidden."""
    loaded = load_or_exit(file, flags)
    values = {setting: getattr(loaded.settings, setting.name) for setting in all_settings()}
    if as_json:
        answer = {
            setting.name: {"value": _jsonable(setting, value), "source": loaded.sources[setting.name]}
            for setting, value in values.items()
        }
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
        return
    widest = max(len(format_setting(setting, value)) for setting, value in values.items())
    for setting, value in values.items():
        click.echo(f"{setting.name:<30} {format_setting(setting, value):<{widest}}  {loaded.sources[setting.name]}")


@config.command()
def doc() -> None:
    """Print a page of Markdown with all settings."""
    click.echo(documentation(), nl=False)


def _jsonable(setting: Setting, value: object) -> object:
    if isinstance(value, tuple):
        return [format_value(each) for each in value]
    return format_setting(setting, value) if isinstance(value, str) else value

"""`seriatim keys`: the keys that sign access tokens. They are listed, and a new one takes over without a pause."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from seriatim.cli.options import exit_with_error, load_or_exit, settings_options
from seriatim.cli.printing import console, print_json, print_rows, quiet_pipe
from seriatim.domain import limits
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.keys.key_folder import KeyFolder, KeyFolderError
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.config.validation import validate_for_inspection

DAY_S = 86_400
_EPILOG = "Exit code: 0 done, 2 refused: then a line says why, and nothing was changed."


@click.group()
def keys() -> None:
    """List and rotate the keys that sign access tokens."""


@keys.command("list", epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@settings_options(only=("data", "keys"))
def list_keys(as_json: bool, file: Path | None, **flags: str | None) -> None:
    """Show which key signs, which ones still verify, and which are of no use any more. Never what is in them."""
    settings = load_or_exit(file, flags, validator=validate_for_inspection).settings
    try:
        folder = _open(settings)
        signing = folder.signing.kid if _private(folder) else None
    except KeyFolderError as reason:
        exit_with_error(reason)
    found = _rows(folder, signing)
    with quiet_pipe():
        if as_json:
            print_json({"folder": str(folder.path), "keys": found})
            return
        print_rows(console(), found)
        if signing is None:
            click.echo("\nNo key signs here: enough for a gateway, not for REST.")


@keys.command(epilog=_EPILOG)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Make the key there instead, both halves, to be carried to the servers. Theirs stay as they are.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@settings_options(only=("data", "keys"))
def rotate(out: Path | None, as_json: bool, file: Path | None, **flags: str | None) -> None:
    """Make a new signing key. Older ones go on verifying, so no user is signed out.

    On one machine the server takes it up by itself within minutes. Where several processes have key folders of their
    own, the order matters, or tokens are refused: use --out, bring NAME.pub.pem to every gateway and REST process,
    wait five minutes, then bring NAME.pem to the REST processes.
    """
    settings = load_or_exit(file, flags, validator=validate_for_inspection).settings
    try:
        folder = _open(settings)
        kid = folder.rotate() if out is None else folder.stage(out)
    except KeyFolderError as reason:
        exit_with_error(reason)
    if as_json:
        print_json({"folder": str(out or folder.path), "key": kid})
        return
    click.echo(kid)
    if out is None:
        click.echo(
            f"It signs once the server has reread {folder.path}: within {limits.KEYS_RELOAD_S // 60} minutes. Older "
            f"keys may be deleted in {limits.KEY_OVERLAP_S // DAY_S} days; `seriatim keys list` says which.",
            err=True,
        )
    else:
        click.echo(
            f"1. {kid}.pub.pem to every key folder; 2. wait {limits.KEYS_RELOAD_S // 60} minutes; 3. {kid}.pem to "
            f"those of the REST processes; 4. remove {out}.",
            err=True,
        )


def _open(settings: Settings) -> KeyFolder:
    return KeyFolder.open(settings.keys_folder, create=False, clock=SystemClock())


def _private(folder: KeyFolder) -> list[str]:
    return [kid for kid in folder.kids if (folder.path / f"{kid}.pem").exists()]


def _rows(folder: KeyFolder, signing: str | None) -> list[dict[str, object]]:
    private = _private(folder)
    newest_first = sorted(folder.kids, reverse=True)
    return [
        {
            "key": kid,
            "halves": "both" if kid in private else "public",
            "use": "signs" if kid == signing else "verifies",
            "may be deleted": _is_spent(kid, newest_first, private),
        }
        for kid in newest_first
    ]


def _is_spent(kid: str, newest_first: Sequence[str], private: Sequence[str]) -> str:
    """Whether a younger key signs for so long that no token of this one lives. Unknown if its name is no time."""
    younger = [each for each in newest_first if each > kid and each in private]
    if not younger:
        return "no"
    replaced_s = _made_s(younger[-1])
    if replaced_s is None:
        return "unknown"
    return "yes" if SystemClock().now_ms() // 1000 > replaced_s + limits.KEY_OVERLAP_S else "no"


def _made_s(kid: str) -> int | None:
    try:
        return int(datetime.strptime(kid.rpartition("-")[2], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None

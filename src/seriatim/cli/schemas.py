"""`seriatim schemas`: for those who change the events of Seriatim. Run in its repository."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from seriatim.cli.options import exit_with_error
from seriatim.cli.printing import print_json, quiet_pipe
from seriatim.operations.event_schemas import Schema
from seriatim.operations.event_schemas import check as check_schemas

INCOMPATIBLE = 1  # exit code
MAIN = "origin/main"
FOLDER = "src/seriatim/domain/schemas"

_EPILOG = "Exit code: 0 every reader can live with the changes, 1 one cannot, 2 they could not be compared."


@click.group(short_help="Compare event schemas with an earlier commit.")
def schemas() -> None:
    """Check the schemas of events, when they are changed."""


@schemas.command(epilog=_EPILOG)
@click.option("--base", metavar="REF", help=f"Commit to compare with.  [default: {MAIN}, or the commit before]")
@click.option("--folder", default=FOLDER, show_default=True, help="Where the schemas are, in the repository.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def check(base: str | None, folder: str, as_json: bool) -> None:
    """Compare the schemas of the working tree with those of an earlier commit: old readers must be able to read new
    events, and new readers old ones.
    """
    root = _git("rev-parse", "--show-toplevel")
    commit = None if root is None else _commit(base)
    if root is None or commit is None:
        if base is not None:
            exit_with_error(f"there is no commit {base} here; fetch it, or name another")
        # A tarball, a first commit, a shallow clone: the tests compare with the frozen schemas in any case.
        click.echo("Nothing to compare with: there is no earlier commit here.", err=True)
        return
    old, new = _committed(commit, folder), _present(Path(root) / folder)
    if not new:
        exit_with_error(f"there are no schemas in {folder}")
    violations = check_schemas(old, new)
    with quiet_pipe():
        if as_json:
            print_json({"base": commit, "schemas": sorted(new), "violations": violations})
        else:
            for violation in violations:
                click.echo(f"{folder}/{violation}")
            verdict = f"{len(violations)} incompatible changes" if violations else "every reader can live with them"
            click.echo(f"{len(new)} schemas compared with {commit[:12]}: {verdict}.")
    sys.exit(INCOMPATIBLE if violations else 0)


def _commit(base: str | None) -> str | None:
    """On the main branch itself, what it was before."""
    if base is not None:
        return _resolved(base)
    main, head = _resolved(MAIN), _resolved("HEAD")
    return main if main is not None and main != head else _resolved("HEAD~1")


def _resolved(ref: str) -> str | None:
    return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")


def _committed(commit: str, folder: str) -> Mapping[str, Schema]:
    names = _git("ls-tree", "--full-tree", "--name-only", commit, f"{folder}/") or ""
    return {
        Path(name).name: _parsed(_git("cat-file", "blob", f"{commit}:{name}") or "", name)
        for name in names.splitlines()
        if name.endswith(".json")
    }


def _present(folder: Path) -> Mapping[str, Schema]:
    return {path.name: _parsed(path.read_text(encoding="utf-8"), path.name) for path in sorted(folder.glob("*.json"))}


def _parsed(text: str, name: str) -> Schema:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        exit_with_error(f"{name} is no schema: {error}")


def _git(*arguments: str) -> str | None:
    """What it says, None if it refuses or is not there."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None

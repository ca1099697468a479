"""`seriatim user`: an operator's shortcut past one-time codes, with or without a running server."""

import asyncio
from pathlib import Path

import click
import msgspec

from seriatim.cli.options import exit_with_error, load_or_exit, settings_options
from seriatim.domain.errors import SeriatimError
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.tools.operator import (
    AddUserRequest,
    AddUserResponse,
    NoServerRunning,
    ServerRefused,
    ask,
    check_user,
)


@click.group()
def user() -> None:
    """Add users without a phone at hand."""


@user.command()
@click.option("--phone", required=True, metavar="NUMBER", help="Phone number with its country, like +4915112345678.")
@click.option("--name", required=True, help="Name that others see.")
@click.option("--token", is_flag=True, help="Also print an access token, alone on the last line. It lives an hour.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@settings_options(only=("data", "keys", "store", "events", "directory"))
def add(phone: str, name: str, token: bool, as_json: bool, file: Path | None, **flags: str | None) -> None:
    """Make a user, or find the one who has this phone number.

    Asks the server that runs on the data folder; if none does, opens the folder itself. With --store dynamodb:// and
    the other engines it asks those, and needs the key folder of the REST processes.

    Exit code: 0 done, 2 refused, and nothing was changed.
    """
    settings = load_or_exit(file, flags).settings
    request = AddUserRequest(phone_number=phone, display_name=name.strip(), with_token=token)
    try:
        check_user(request)
        added = _add(settings, request)
    except (SeriatimError, ServerRefused) as reason:
        exit_with_error(reason)
    except OSError as error:
        exit_with_error(f"the server on {settings.data} does not answer: {error}")
    if as_json:
        click.echo(msgspec.json.encode(added).decode())
        return
    if not added.created:
        click.echo(f"{request.phone_number} already has a user, who was left as they are.", err=True)
    click.echo(added.user_id)
    if added.access_token is not None:
        click.echo(added.access_token)


def _add(settings: Settings, request: AddUserRequest) -> AddUserResponse:
    if settings.is_distributed:
        # In a process with the engines of REST that serves no clients.
        return _add_directly(
            msgspec.structs.replace(settings, roles=(ProcessRole.INGEST, ProcessRole.API), ingest=()), request
        )
    try:
        return ask(settings.data_folder, "/users", request, AddUserResponse)
    except NoServerRunning:
        return _add_directly(settings, request)


def _add_directly(settings: Settings, request: AddUserRequest) -> AddUserResponse:
    from seriatim.runtime.server.lifecycle import StartupError
    from seriatim.runtime.wiring.assemble import assemble

    async def work() -> AddUserResponse:
        server = await assemble(settings, instance="operator", create=False)
        try:
            assert server.roles.operator is not None
            return await server.roles.operator.add_user(request)
        finally:
            await server.close()

    try:
        return asyncio.run(work())
    except StartupError as reason:
        exit_with_error(reason)

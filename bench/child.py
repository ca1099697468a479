"""What is measured, each in a process of its own: our server or one role, the bare store, the bare WebSocket library.

`python -m bench.child KIND --core N ...`, started by `bench.processes`. It ends when its standard input does, so none
is left behind by a bench that was interrupted.
"""

import argparse
import asyncio
import cProfile
import itertools
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from websockets.asyncio.server import ServerConnection, broadcast, serve

from bench.processes import on_a_loop
from seriatim.domain import limits

Handler = Callable[[ServerConnection], Awaitable[None]]

# A figure of one connection must not be its rate limit, and a thousand sockets of one chat need ten devices a member.
# Set here, in the bench's own process and before anything of the server is imported: no setting can do it.
LIFTED = {"SEND_RATE_PER_S": 1e9, "SEND_BURST_MAX": 1_000_000_000, "SESSIONS_PER_USER_MAX": 100}

# DynamoDB Local does one thing after another, and shares our cores: a crowd waits seconds for what the real one does at
# once. So whoever waits has five times the patience, in the same proportions.
PATIENT = {
    "STORE_TIMEOUT_S": 5.0,
    "SLOT_LEASE_S": 7.5,
    "SEAL_AFTER_S": 10.0,
    "PUBLISH_TIMEOUT_S": 20.0,
    "PERSIST_DEADLINE_S": 25.0,
    "RECONCILE_AFTER_S": 25.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("seriatim", "role", "chat", "echo", "broadcast", "store"))
    parser.add_argument("--core", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--chats", type=int, default=1)
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked, rest = parser.parse_known_args()
    if rest and asked.kind != "role":
        parser.error(f"what is {' '.join(rest)}?")
    if asked.core is not None:
        os.sched_setaffinity(0, {asked.core})
    match asked.kind:
        case "seriatim":
            seriatim(asked.data, asked.profile)
        case "role":
            role(rest)
        case "chat":
            on_a_loop(bare_chat(asked.data, asked.members))
        case "echo":
            on_a_loop(library(echo))
        case "broadcast":
            on_a_loop(library(pass_on({})))
        case "store":
            store(asked.data, asked.chats, asked.writers, asked.seconds)


def seriatim(data: Path, profile: Path | None) -> None:
    """`seriatim serve --env test` with the limits of `LIFTED`. Its log says where it listens."""
    lift(LIFTED)
    from seriatim.runtime.config.settings import Settings
    from seriatim.runtime.server import process

    _end_with_stdin()
    settings = Settings(env="test", port=0, internal="127.0.0.1:0", data=str(data), log_format="json")
    if profile is None:
        process.run(settings, lambda: settings)
        return
    seen = cProfile.Profile()
    try:
        seen.runcall(process.run, settings, lambda: settings)
    finally:
        seen.dump_stats(profile)


def role(arguments: Sequence[str]) -> None:
    """`seriatim gateway ...`, or another role, with the limits of `LIFTED` and `PATIENT`."""
    lift({**LIFTED, **PATIENT})
    from seriatim.cli.main import main as seriatim_main

    _end_with_stdin()
    sys.argv = ["seriatim", *arguments]
    seriatim_main()


async def echo(connection: ServerConnection) -> None:
    async for text in connection:
        await connection.send(text)


def pass_on(everybody: dict[ServerConnection, None]) -> Handler:
    async def handle(connection: ServerConnection) -> None:
        everybody[connection] = None
        try:
            async for text in connection:
                broadcast(everybody, text)
        finally:
            del everybody[connection]

    return handle


def pass_on_to(chat: Sequence[ServerConnection], text: str | bytes, receipt: object) -> None:
    broadcast(chat, text)


async def bare_chat(data: Path, members: int) -> None:
    """A durable chat as plain as can be: the library, the store, and nothing between them.

    Whoever connects next fills up the next chat. A text is stored and synced with all that waits, then everyone in
    the chat gets it, its sender too. Nobody is asked who they are, nothing is checked, found again or put in order.
    """
    from bench.embedded import client_id, sender
    from bench.store import GroupedLog
    from seriatim.domain.message import Draft
    from seriatim.engines.embedded.storage.disk import Disk

    log = GroupedLog(Disk(data, create=True))
    chats: list[list[ServerConnection]] = []
    numbers = itertools.count()

    async def handle(connection: ServerConnection) -> None:
        if not chats or len(chats[-1]) == members:
            chats.append([])
        chat, chat_id = chats[-1], f"chat_{len(chats)}"
        chat.append(connection)
        async for text in connection:
            draft = Draft(
                chat_id=chat_id, sender_id=sender(0), client_message_id=client_id(next(numbers)), content=str(text)
            )
            log.submit(draft, deadline=0.0, answer=partial(pass_on_to, chat, text))

    await library(handle)


async def library(handle: Handler) -> None:
    """The `websockets` library's own server, on the same event loop as ours."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    _end_with_stdin()
    async with serve(handle, "127.0.0.1", 0, compression=None, backlog=2048) as server:
        _say({"event": "listening", "port": server.sockets[0].getsockname()[1]})
        await stop.wait()
        os._exit(0)  # a thousand goodbyes tell us nothing


def store(data: Path, chats: int, writers: int, seconds: float) -> None:
    from bench.store import grouped_appends

    _say({"event": "result", **grouped_appends(data, chats, writers, seconds)})


def lift(found: Mapping[str, float]) -> None:
    for name, value in found.items():
        assert hasattr(limits, name), f"there is no limit {name} any more"
        setattr(limits, name, value)


def _end_with_stdin() -> None:
    def wait() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _say(found: object) -> None:
    print(json.dumps(found), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

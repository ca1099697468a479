"""A suite: promises that quote their port, as plain functions, so that broken engines can be put to them as well."""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from types import ModuleType

from seriatim import ports
from seriatim.ports import accounts, catalog, message_log, request_keys
from tests.contract import (
    catalog_suite,
    codes_suite,
    counters_suite,
    members_suite,
    request_keys_suite,
    sessions_suite,
    slots_suite,
    users_suite,
)
from tests.contract.store_engines import StoreEngine

Promise = Callable[[StoreEngine], Awaitable[None]]


class Suite:
    """The promises of one port: every public coroutine of some modules. Docstrings are sentences of the port.

    `unquoted` are sentences that describe or permit, or that others keep: there is nothing for an engine to break.
    """

    def __init__(self, port: ModuleType, modules: Sequence[ModuleType], *, unquoted: Sequence[str]) -> None:
        self.promises: list[Promise] = [each for module in modules for each in _promises(module)]
        self._ports = (ports, port)
        self._unquoted = [*unquoted, *_sentences(ports.__doc__)[:2]]

    def untested_sentences(self) -> list[str]:
        quoted = self._quotes()
        return [each for each in self._sentences_of_the_port() if each not in quoted]

    def stale_quotes(self) -> list[str]:
        said = self._sentences_of_the_port()
        return [each for each in self._quotes() if each not in said]

    def _quotes(self) -> list[str]:
        return [each for promise in self.promises for each in _sentences(promise.__doc__)] + self._unquoted

    def _sentences_of_the_port(self) -> list[str]:
        """All that it says: in its module, its types and their methods."""
        found: list[str] = []
        for port in self._ports:
            found += _sentences(port.__doc__)
            for _, owner in inspect.getmembers(port, inspect.isclass):
                if owner.__module__ == port.__name__:
                    found += _sentences(owner.__doc__)
                    for _, method in inspect.getmembers(owner, inspect.isfunction):
                        if method.__module__ == port.__name__:
                            found += _sentences(method.__doc__)
        return found


async def keep(promise: Promise, engine: Callable[[], StoreEngine]) -> None:
    """Puts one promise to a fresh store of that engine."""
    store = engine()
    await store.open()
    try:
        await promise(store)
    finally:
        await store.close()


def name_of(promise: Promise) -> str:
    return promise.__name__


def _promises(module: ModuleType) -> list[Promise]:
    functions = [each for each in vars(module).values() if inspect.iscoroutinefunction(each)]
    return [each for each in functions if each.__module__ == module.__name__ and not each.__name__.startswith("_")]


def _sentences(text: str | None) -> list[str]:
    return re.split(r"(?<=\.) ", " ".join(text.split())) if text else []


MESSAGE_LOG = Suite(
    message_log,
    [slots_suite, counters_suite],
    unquoted=[
        *_sentences(message_log.__doc__),
        "A chat's counter row.",
        "Every message at or below `published_through` is in the event log.",  # the publisher keeps it
        "A message and what its key must say.",
        "A query may see some of the entries before the others.",  # a permission, which the memory engine uses
        "Break-glass writes of the repair command (W20, W21) and the reads they rest on.",
    ],
)
CATALOG = Suite(
    catalog,
    [catalog_suite, members_suite],
    unquoted=[
        "The authority for chats and memberships.",
        "Who is in a chat.",
        "Of more than 98 members the last may follow the others.",  # a permission: one transaction takes no more
    ],
)
ACCOUNTS = Suite(
    accounts,
    [codes_suite, sessions_suite, users_suite],
    unquoted=[
        *_sentences(accounts.__doc__),
        "What has expired is removed some time later.",  # a permission; how it is used is each engine's own test
    ],
)
REQUEST_KEYS = Suite(
    request_keys,
    [request_keys_suite],
    unquoted=_sentences(request_keys.__doc__),
)

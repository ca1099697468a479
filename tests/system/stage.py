"""Where faults are tried: engines and processes of the test's own, and people who talk while something breaks."""

import asyncio
import copy
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from seriatim.domain import limits
from seriatim.engines.grpc.durability import rendezvous
from tests.support.real_engines import real_engines
from tests.system.deployment import Deployment, deployed, engines_at
from tests.system.fault_list import Fault
from tests.system.lines import BehindALine, Lines
from tests.system.people import Person, Place
from tests.system.server import COMMAND, WAIT_S, clean_environment
from tests.system.storm import Rest, Storm
from tests.system.talk import Handset, Talk
from tools.engines.engines import Engines
from tools.engines.ports import HOST

PEOPLE = 8
SILENT = 2  # of them, one at each gateway
CHATS = 4
REFUSED_S = (
    3 * limits.PERSIST_DEADLINE_S
)  # an error comes by the deadline; the rest is for a machine that does much else
CHATS_TRIED_MAX = 50


class Stage:
    """`gateways`: where people connect, by turns."""

    def __init__(self, folder: Path, deployment: Deployment, gateways: Sequence[Place]) -> None:
        self.deployment = deployment
        self._folder = folder
        self._gateways = gateways
        with ThreadPoolExecutor(PEOPLE) as hands:
            numbers = [f"+49151{each:08d}" for each in range(PEOPLE)]
            self.people = list(hands.map(lambda number: Person(deployment.api, number), numbers))

    @asynccontextmanager
    async def enduring(self, fault: Fault) -> AsyncIterator[Storm]:
        """Break something inside; at the end of the block it must be whole again, or come back by itself.

        Then everything must be as before in time, and nothing be lost, there twice, in another order, or a dead letter.
        """
        chats = await asyncio.to_thread(self._chats)
        phones = [
            Handset(each, self._order(number), chats, impatient=number == 0) for number, each in enumerate(self.people)
        ]
        async with Talk(phones, chats, silent=SILENT) as talk, Rest(self.people[-1]) as rest:
            await talk.goes_on()
            storm = Storm(self.deployment, talk, rest)
            yield storm
            storm.over()
            await storm.passes()
        await talk.agrees()
        assert max((took for each in phones for took in each.refused_after), default=0.0) < REFUSED_S
        await asyncio.to_thread(self._check)
        assert sum(each.metric("fanout_dlq_rate_total") for each in self.deployment.fanouts) == 0
        storm.report(fault)

    def rest_elsewhere(self) -> int:
        """The status of an answer of the REST process that is not broken."""
        person = copy.copy(self.people[0])
        person.server = self.deployment.apis[1]
        return person.call("GET", "/chats").status

    def _chats(self) -> Sequence[str]:
        """As many of each ingest process, so that no fault of one meets nobody."""
        addresses = sorted(f"127.0.0.1:{each.rpc_port}" for each in self.deployment.ingests)
        wanted = dict.fromkeys(addresses, CHATS // len(addresses))
        found: list[str] = []
        for _ in range(CHATS_TRIED_MAX):
            chat_id = self.people[0].create_group(*self.people[1:])
            owner = rendezvous(chat_id, addresses)
            if wanted[owner]:
                wanted[owner] -= 1
                found.append(chat_id)
            if not any(wanted.values()):
                return found
        raise AssertionError("no chats were found for every ingest process")

    def _order(self, number: int) -> Sequence[Place]:
        first = number % len(self._gateways)
        return [*self._gateways[first:], *self._gateways[:first]]

    def _check(self) -> None:
        """`seriatim check` finds nothing in the real stores."""
        done = subprocess.run(
            (*COMMAND, "check", "--recheck-seconds", "1"),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env={**clean_environment(), **self.deployment.engines},
            cwd=self._folder,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def staged(folder: Path) -> Iterator[tuple[Stage, Engines, BehindALine]]:
    """Two of each role on engines that nobody else uses. DynamoDB is ended and started by what comes last."""
    with real_engines():
        engines = Engines.started(folder)
        engines.__enter__()
    try:
        with Lines() as lines:
            line = lines.lay("dynamodb", engines.dynamodb.port)
            at = engines_at(f"http://{HOST}:{line.port}", engines.kafka_bootstrap, engines.redis_url)
            with deployed(folder, "--apis", "2", engines=at) as deployment:
                stage = Stage(folder, deployment, deployment.gateways)
                yield stage, engines, BehindALine(engines.dynamodb, lines, "dynamodb")
    finally:
        engines.__exit__()

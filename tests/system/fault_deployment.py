"""Where faults are tried: engines and processes of the test's own, and users who write while something breaks."""

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
from tests.system.fault_run import FaultRun, RestPoller
from tests.system.network_proxies import NetworkProxies, ProxiedDynamoDB
from tests.system.server_process import COMMAND, WAIT_S, clean_environment
from tests.system.users import Endpoint, User
from tests.system.write_load import RetryingDevice, WriteLoad
from tools.engines.engines import Engines
from tools.engines.ports import HOST

USERS = 8
SILENT = 2  # of them, one at each gateway
CHATS = 4
REFUSED_S = (
    3 * limits.PERSIST_DEADLINE_S
)  # an error comes by the deadline; the rest is for a machine that does much else
CHATS_TRIED_MAX = 50


class FaultDeployment:
    """`gateways`: where users connect, by turns."""

    def __init__(self, folder: Path, deployment: Deployment, gateways: Sequence[Endpoint]) -> None:
        self.cluster = deployment
        self._folder = folder
        self._gateways = gateways
        with ThreadPoolExecutor(USERS) as hands:
            numbers = [f"+49151{each:08d}" for each in range(USERS)]
            self.users = list(hands.map(lambda number: User(deployment.api, number), numbers))

    @asynccontextmanager
    async def under_load(self, fault: Fault) -> AsyncIterator[FaultRun]:
        """Break something inside; at the end of the block it must be whole again, or come back by itself.

        Then everything must be as before in time, and nothing be lost, there twice, in another order, or a dead letter.
        """
        chats = await asyncio.to_thread(self._chats)
        devices = [
            RetryingDevice(each, self._order(number), chats, impatient=number == 0)
            for number, each in enumerate(self.users)
        ]
        async with WriteLoad(devices, chats, silent=SILENT) as load, RestPoller(self.users[-1]) as rest:
            await load.progress()
            run = FaultRun(self.cluster, load, rest)
            yield run
            run.mark_end()
            await run.until_recovered()
        await load.check_agreement()
        assert max((took for each in devices for took in each.refused_after), default=0.0) < REFUSED_S
        await asyncio.to_thread(self._check)
        assert sum(each.metric("fanout_dlq_rate_total") for each in self.cluster.fanouts) == 0
        run.report(fault)

    def rest_elsewhere(self) -> int:
        """The status of an answer of the REST process that is not broken."""
        user = copy.copy(self.users[0])
        user.server = self.cluster.apis[1]
        return user.call("GET", "/chats").status

    def _chats(self) -> Sequence[str]:
        """As many of each ingest process, so that no fault of one meets nobody."""
        addresses = sorted(f"127.0.0.1:{each.rpc_port}" for each in self.cluster.ingests)
        wanted = dict.fromkeys(addresses, CHATS // len(addresses))
        found: list[str] = []
        for _ in range(CHATS_TRIED_MAX):
            chat_id = self.users[0].create_group(*self.users[1:])
            owner = rendezvous(chat_id, addresses)
            if wanted[owner]:
                wanted[owner] -= 1
                found.append(chat_id)
            if not any(wanted.values()):
                return found
        raise AssertionError("no chats were found for every ingest process")

    def _order(self, number: int) -> Sequence[Endpoint]:
        first = number % len(self._gateways)
        return [*self._gateways[first:], *self._gateways[:first]]

    def _check(self) -> None:
        """`seriatim check` finds nothing in the real stores."""
        done = subprocess.run(
            (*COMMAND, "check", "--recheck-seconds", "1"),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env={**clean_environment(), **self.cluster.engines},
            cwd=self._folder,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def deploy_for_faults(folder: Path) -> Iterator[tuple[FaultDeployment, Engines, ProxiedDynamoDB]]:
    """Two of each role on engines that nobody else uses. DynamoDB is ended and started by what comes last."""
    with real_engines():
        engines = Engines.started(folder)
        engines.__enter__()
    try:
        with NetworkProxies() as proxies:
            line = proxies.add("dynamodb", engines.dynamodb.port)
            at = engines_at(f"http://{HOST}:{line.port}", engines.kafka_bootstrap, engines.redis_url)
            with deployed(folder, "--apis", "2", engines=at) as deployment:
                fault_deployment = FaultDeployment(folder, deployment, deployment.gateways)
                yield fault_deployment, engines, ProxiedDynamoDB(engines.dynamodb, proxies, "dynamodb")
    finally:
        engines.__exit__()

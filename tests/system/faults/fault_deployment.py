"""Where faults are tried: engines and processes of the test's own, and users who write while something breaks."""

import asyncio
import copy
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from seriatim.domain import limits
from seriatim.engines.grpc.durability import rendezvous
from tests.support.real_engines import real_engines
from tests.support.soak import SOAK
from tests.system.deployment import Deployment, deployed, engines_at
from tests.system.faults.fault_list import Fault
from tests.system.faults.fault_run import FaultRun, RestPoller
from tests.system.faults.network_proxies import NetworkProxies, ProxiedDynamoDB, ProxiedKafka, extra_gateway
from tests.system.faults.write_load import RetryingDevice, WriteLoad
from tests.system.server_process import COMMAND, WAIT_S, clean_environment
from tests.system.users import Endpoint, User
from tools.engines.dynamodb import DynamoDB
from tools.engines.kafka import Kafka
from tools.engines.ports import HOST
from tools.engines.redis import Redis

USERS = 8
SILENT = 2  # of them, one at each gateway
CHATS = 4
REFUSED_S = (
    3 * limits.PERSIST_DEADLINE_S
)  # an error comes by the deadline; the rest is for a machine that does much else
CHATS_TRIED_MAX = 50


class FaultDeployment:
    """`gateways`: where users connect, by turns."""

    def __init__(
        self,
        folder: Path,
        cluster: Deployment,
        gateways: Sequence[Endpoint],
        *,
        proxies: NetworkProxies,
        dynamodb: ProxiedDynamoDB,
        kafka: Kafka,
        redis: Redis,
    ) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.dynamodb = dynamodb
        self.kafka = kafka
        self.redis = redis
        self._folder = folder
        self._gateways = gateways
        with ThreadPoolExecutor(USERS) as hands:
            numbers = [f"+49151{each:08d}" for each in range(USERS)]
            self.users = list(hands.map(lambda number: User(cluster.api, number), numbers))

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
        if SOAK:  # otherwise once, after all faults: what is wrong in a store stays wrong
            await asyncio.to_thread(self.check_stores)
        assert sum(each.metric("fanout_dlq_rate_total") for each in self.cluster.fanouts) == 0
        run.report(fault)

    def rest_elsewhere(self) -> int:
        """The status of an answer of the REST process that is not broken."""
        user = copy.copy(self.users[0])
        user.server = self.cluster.apis[1]
        return user.call("GET", "/chats").status

    def _chats(self) -> Sequence[str]:
        """As many of each ingest process, so that every fault of one meets some chats."""
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

    def check_stores(self) -> None:
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
def deploy_for_faults(folder: Path) -> Iterator[FaultDeployment]:
    """Two of each role on engines of their own. Every route between two processes has a proxy.

    The third gateway is the one whose route to the ingest processes has proxies, too.
    """
    with ExitStack() as opened:
        proxies = opened.enter_context(NetworkProxies())
        to_kafka = proxies.add("all_kafka")
        with real_engines():
            dynamodb = opened.enter_context(DynamoDB.started(folder / "dynamodb"))
            redis = opened.enter_context(Redis.started(folder / "redis"))
            kafka = ProxiedKafka(folder / "kafka", to_kafka)
            opened.callback(kafka.kill)
            kafka.start()
        to_kafka.target_port = kafka.port
        at = engines_at(
            f"http://{HOST}:{proxies.add('all_dynamodb', dynamodb.port).port}",
            kafka.bootstrap,
            f"redis://{HOST}:{proxies.add('all_redis', redis.port).port}",
        )
        cluster = opened.enter_context(deployed(folder, "--apis", "2", engines=at))
        ingests = [f"{HOST}:{proxies.add('gateway_ingest', each.rpc_port).port}" for each in cluster.ingests]
        third = opened.enter_context(extra_gateway(folder, at, ingests))
        first = ProxiedGateway(proxies.add("client_gateway", cluster.gateways[0].port).port)
        yield FaultDeployment(
            folder,
            cluster,
            [first, cluster.gateways[1], third],
            proxies=proxies,
            dynamodb=ProxiedDynamoDB(dynamodb, proxies, "all_dynamodb"),
            kafka=kafka,
            redis=redis,
        )


class ProxiedGateway:
    """Where a client finds a gateway: at the proxy of a route."""

    host = HOST

    def __init__(self, port: int) -> None:
        self.port = port

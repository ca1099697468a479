"""The only wiring: which engine stands behind which port, and who is handed what. Nothing runs yet.

Today everything is embedded: one folder, one process. The planes do not know.
"""

from collections.abc import Callable

import msgspec

from seriatim import __version__
from seriatim.api.membership import MembershipService
from seriatim.api.sessions import Revoker, SocketCloser
from seriatim.connection.front import Front
from seriatim.connection.gateway import Gateway
from seriatim.connection.handshake import Admission
from seriatim.domain import ids
from seriatim.domain.addresses import parse_networks
from seriatim.durability.ingest import Ingest
from seriatim.engines.embedded.accounts import EmbeddedAccounts
from seriatim.engines.embedded.catalog import EmbeddedCatalog, EmbeddedRoster
from seriatim.engines.embedded.event_log import EmbeddedDeadLetterWriter, EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.event_reader import EmbeddedEventReader
from seriatim.engines.embedded.folder import Folder, FolderError
from seriatim.engines.embedded.request_keys import EmbeddedRequestKeys
from seriatim.engines.embedded.sweep import Sweeper
from seriatim.engines.keys.authenticator import KeyAuthenticator
from seriatim.engines.keys.key_folder import KeyFolder, KeyFolderError
from seriatim.engines.keys.secrets import KeySecrets
from seriatim.engines.keys.tokens import Rs256Signer
from seriatim.engines.local.code_sender import FixedCodes, LogCodeSender, fixed_code, new_code
from seriatim.engines.local.quotas import LocalQuotas
from seriatim.engines.local.revocations import LocalRevocations
from seriatim.engines.memory.directory import MemoryDirectory, MemoryRegistry
from seriatim.engines.memory.push import MemoryChannels, MemoryPush, MemoryPushSubscriber
from seriatim.engines.memory.system_clock import SystemClock
from seriatim.engines.memory.wire import ShortWire
from seriatim.fanout.service import FanoutService
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES
from seriatim.protocol.asyncapi import document as asyncapi_document
from seriatim.runtime.counting import CountedLog
from seriatim.runtime.metrics import Metrics
from seriatim.runtime.operator import Operator
from seriatim.runtime.rest import Behind, rest_app
from seriatim.runtime.server import CannotStart, Server
from seriatim.runtime.settings import Settings
from seriatim.runtime.small_app import SmallApp
from seriatim.runtime.sweeping import Sweeping
from seriatim.runtime.watch import FANOUT_GROUP, Watch

TOPICS = {MESSAGES: 64, MEMBERSHIPS: 16, CHATS: 16, DEAD_LETTERS: 8}  # spec/data.md 3.1


async def assemble(
    settings: Settings,
    *,
    instance: str,
    say: Callable[[str], object] = lambda line: None,
    create: bool = True,
) -> Server:
    """A server that is ready to start. `say` prints one-time codes; `create` makes folder and keys if they are missing.

    Raises `CannotStart` with what stands in the way.
    """
    clock = SystemClock()
    try:
        folder = Folder.open(settings.data_folder, create=create)
    except FolderError as error:
        raise CannotStart(str(error)) from error
    try:
        # The keys come second: a folder that is not ours, or in use, must not be given any.
        keys = KeyFolder.open(settings.keys_folder, create=create, clock=clock)
        events = await EmbeddedEventLog.open(folder, TOPICS)
        return _wire(settings, instance, say, clock, folder, keys, events)
    except (FolderError, KeyFolderError) as error:
        await folder.close()
        raise CannotStart(str(error)) from error
    except BaseException:
        await folder.close()
        raise


def _wire(
    settings: Settings,
    instance: str,
    say: Callable[[str], object],
    clock: SystemClock,
    folder: Folder,
    keys: KeyFolder,
    events: EmbeddedEventLog,
) -> Server:
    lifted = settings.env == "test"
    metrics = Metrics(instance)
    run_id = ids.ulid(clock.now_ms(), clock.random_bits(80))  # a process that starts again is another one

    # engines
    wire = ShortWire()
    directory = MemoryDirectory(MemoryRegistry(), wire, clock.now_ms)
    channels = MemoryChannels()
    push = MemoryPush(channels, wire)
    messages = CountedLog(folder, metrics.durability)
    catalog = EmbeddedCatalog(folder)
    accounts = EmbeddedAccounts(folder)
    writer = EmbeddedEventWriter(events, clock)
    revocations = LocalRevocations(clock)
    signer = Rs256Signer(keys)
    authenticator = KeyAuthenticator(keys, revocations, accounts, clock, troubled=metrics.keys_troubled)

    # planes
    ingest = Ingest(
        log=messages, events=writer, clock=clock, producer_id=f"ingest-{run_id}", observe=metrics.durability
    )
    gateway = Gateway(
        f"gateway-{run_id}",
        ingest,
        directory,
        push,
        MemoryPushSubscriber(channels, wire),
        clock,
        observe=metrics.gateway,
    )
    fanout = FanoutService(
        EmbeddedEventReader(events, FANOUT_GROUP, f"fanout-{run_id}"),
        EmbeddedDeadLetterWriter(events, clock),
        EmbeddedRoster(folder),
        directory,
        push,
        clock,
        consumer_group=FANOUT_GROUP,
        consumer_id=f"fanout-{run_id}",
        observe=metrics.fanout,
    )

    # edges
    watch = Watch(folder, events, ingest, gateway, metrics, clock)
    revoker = Revoker(accounts, revocations, SocketCloser(directory, push))
    operator = Operator(accounts, revoker, signer, clock)
    rest = rest_app(
        Behind(
            accounts=accounts,
            catalog=catalog,
            delivery=messages,
            durability=ingest,
            history=ingest,
            memberships=MembershipService(
                catalog=catalog,
                events=writer,
                directory=directory,
                clock=clock,
                producer_id=f"api-{run_id}",
                observe=metrics.memberships,
            ),
            request_keys=EmbeddedRequestKeys(folder),
            quotas=LocalQuotas(clock),
            secrets=KeySecrets(keys),
            signer=signer,
            authenticator=authenticator,
            revoker=revoker,
            sender=FixedCodes() if lifted else LogCodeSender(say),
            new_code=fixed_code if lifted else new_code,
            clock=clock,
            observe=metrics.api,
            ready=watch.readiness,
        ),
        lifted=lifted,
        reuse_leeway_s=settings.refresh_reuse_leeway_seconds,
        trusted_proxies=settings.trusted_proxies,
        cors_origins=settings.cors_origins,
        docs={"/asyncapi.json": ("application/json", msgspec.json.encode(asyncapi_document(__version__)))},
    )
    admission = Admission(
        authenticator,
        directory,
        clock,
        lifted=lifted,
        origins=settings.origins or None,
        trusted_proxies=parse_networks(settings.trusted_proxies),
    )
    inside = Front(gateway, SmallApp(watch.routes()), admission, clock, observe=metrics.front, sockets=False)
    local = Front(gateway, SmallApp(operator.routes()), admission, clock, observe=metrics.front, sockets=False)
    return Server(
        settings=settings,
        folder=folder,
        keys_created=keys.created,
        gateway=gateway,
        ingest=ingest,
        fanout=fanout,
        sweeping=Sweeping(Sweeper(folder, events), metrics, clock, every_s=settings.sweep_seconds),
        operator=operator,
        front=Front(gateway, rest.app, admission, clock, observe=metrics.front),
        internal_front=inside,
        operator_front=local,
        codes=rest.codes,
    )

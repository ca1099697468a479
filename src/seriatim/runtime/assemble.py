"""The only wiring: which world of engines a process lives in, which roles it has, and who is handed what.

Nothing runs yet. `embedded` and `distributed` name the engines; the planes do not know which of them they got.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from seriatim import __version__
from seriatim.api.membership import MembershipService
from seriatim.api.sessions import Revoker, SocketCloser
from seriatim.connection.door import ASGIApp
from seriatim.connection.front import Front
from seriatim.connection.gateway import Gateway
from seriatim.connection.handshake import Admission
from seriatim.domain import ids
from seriatim.domain.addresses import parse_networks
from seriatim.domain.limits import FLUSH_PATIENCE_TURNS
from seriatim.durability.ingest import Ingest
from seriatim.engines.embedded.folder import Folder, FolderError
from seriatim.engines.keys.authenticator import KeyAuthenticator
from seriatim.engines.keys.key_folder import KeyFolder, KeyFolderError
from seriatim.engines.keys.secrets import KeySecrets
from seriatim.engines.keys.tokens import Rs256Signer
from seriatim.engines.local.code_sender import FixedCodes, LogCodeSender, fixed_code, new_code
from seriatim.engines.memory.system_clock import SystemClock
from seriatim.fanout.service import FanoutService
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.revocations import Revocations
from seriatim.ports.tokens import Authenticator
from seriatim.protocol.asyncapi import document as asyncapi_document
from seriatim.runtime.embedded import EmbeddedWorld
from seriatim.runtime.metrics import Metrics
from seriatim.runtime.nobody import no_admission, no_gateway
from seriatim.runtime.operator import Operator
from seriatim.runtime.rest import Behind, Rest, rest_app
from seriatim.runtime.roles import Role
from seriatim.runtime.server import CannotStart, Fronts, Roles, Server
from seriatim.runtime.settings import Settings
from seriatim.runtime.small_app import SmallApp
from seriatim.runtime.watch import FANOUT_GROUP, Watch
from seriatim.runtime.world import ForGateway, IngestListener, Plane, World

T = TypeVar("T")
Say = Callable[[str], object]


async def assemble(settings: Settings, *, instance: str, say: Say = lambda line: None, create: bool = True) -> Server:
    """A server that is ready to start. `say` prints one-time codes; `create` makes folder and keys if they are missing.

    Raises `CannotStart` with what stands in the way.
    """
    clock = SystemClock()
    metrics = Metrics(instance, settings.here)
    run_id = ids.ulid(clock.now_ms(), clock.random_bits(80))  # a process that starts again is another one
    world = await _open(settings, metrics, clock, run_id, create=create)
    try:
        # The keys come second: a folder that is not ours, or in use, must not be given any.
        keys = _keys(settings, clock, create=create)
        return _Process(settings, metrics, clock, run_id, world, keys, say).server()
    except KeyFolderError as error:
        await world.close()
        raise CannotStart(str(error)) from error
    except BaseException:
        await world.close()
        raise


async def _open(settings: Settings, metrics: Metrics, clock: Clock, run_id: str, *, create: bool) -> World:
    if settings.is_distributed:
        # Its engines are packages of their own, which a server on one folder does without.
        from seriatim.runtime.distributed import DistributedWorld

        return await DistributedWorld.open(settings, metrics, clock, run_id)
    try:
        folder = Folder.open(settings.data_folder, create=create)
    except FolderError as error:
        raise CannotStart(str(error)) from error
    try:
        return await EmbeddedWorld.open(folder, settings, metrics, clock)
    except FolderError as error:
        await folder.close()
        raise CannotStart(str(error)) from error
    except BaseException:
        await folder.close()
        raise


def _keys(settings: Settings, clock: Clock, *, create: bool) -> KeyFolder | None:
    """Only REST signs, so only REST makes keys; a gateway is content with the public ones."""
    if Role.API in settings.here:
        return KeyFolder.open(settings.keys_folder, create=create, clock=clock)
    if Role.GATEWAY in settings.here:
        return KeyFolder.open(settings.keys_folder, create=False, clock=clock)
    return None


class _Process:
    """Puts one process together, role by role; what is None runs elsewhere."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        clock: Clock,
        run_id: str,
        world: World,
        keys: KeyFolder | None,
        say: Say,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._run_id = run_id
        self._world = world
        self._keys = keys
        self._say = say
        self._lifted = settings.env == "test"
        self._nobody = no_gateway(clock)
        # Whom gateways and REST ask: ingest processes that were named, or else the one in here.
        self._plane: Plane | None = world.remote
        self._sessions: Sessions | None = world.remote

    def server(self) -> Server:
        ingest, listener = self._ingest()
        at_gateway = self._world.for_gateway() if Role.GATEWAY in self._settings.here else None
        gateway = None if at_gateway is None else self._gateway(at_gateway)
        fanout = self._fanout()
        watch = Watch(
            self._world, self._metrics, self._clock, gateway=gateway, ingest=ingest, fanout=fanout, listener=listener
        )
        api = self._api(watch)
        local = None
        if api is not None and not self._settings.is_distributed:
            local = SmallApp({**api.operator.routes(), **self._world.operator_routes()})
        return Server(
            settings=self._settings,
            world=self._world,
            roles=Roles(
                gateway=gateway,
                ingest=ingest,
                listener=listener,
                fanout=fanout,
                operator=None if api is None else api.operator,
                codes=None if api is None else api.rest.codes,
            ),
            fronts=Fronts(
                internal=self._front(gateway, SmallApp(watch.routes())),
                public=self._public(gateway, at_gateway, api, watch),
                local=None if local is None else self._front(gateway, local),
            ),
            watch=watch,
            keys_created=() if self._keys is None else self._keys.created,
        )

    # --- planes -------------------------------------------------------------------------------------------------------

    def _ingest(self) -> tuple[Ingest | None, IngestListener | None]:
        if Role.INGEST not in self._settings.here:
            return None, None
        given = self._world.for_ingest()
        ingest = Ingest(
            log=given.log,
            events=given.events,
            clock=self._clock,
            producer_id=f"ingest-{self._run_id}",
            one_step=given.one_step,
            user_chats=given.user_chats,
            observe=self._metrics.durability,
        )
        self._plane = self._plane or ingest
        self._sessions = self._sessions or given.sessions
        return ingest, self._world.listener(ingest, given.sessions)

    def _gateway(self, given: ForGateway) -> Gateway:
        return Gateway(
            f"gateway-{self._run_id}",
            _needed(self._plane),
            given.directory,
            given.push,
            given.subscriber,
            self._clock,
            observe=self._metrics.gateway,
            patience_turns=FLUSH_PATIENCE_TURNS,
        )

    def _fanout(self) -> FanoutService | None:
        if Role.FANOUT not in self._settings.here:
            return None
        consumer_id = f"fanout-{self._run_id}"
        given = self._world.for_fanout(FANOUT_GROUP, consumer_id)
        return FanoutService(
            given.reader,
            given.letters,
            given.roster,
            given.directory,
            given.push,
            self._clock,
            consumer_group=FANOUT_GROUP,
            consumer_id=consumer_id,
            observe=self._metrics.fanout,
        )

    # --- edges --------------------------------------------------------------------------------------------------------

    def _api(self, watch: Watch) -> "_Api | None":
        if Role.API not in self._settings.here:
            return None
        keys, plane, given = _needed(self._keys), _needed(self._plane), self._world.for_api()
        signer = Rs256Signer(keys)
        authenticator = self._authenticator(given.revocations, given.accounts)
        revoker = Revoker(given.accounts, given.revocations, SocketCloser(given.directory, given.push))
        memberships = MembershipService(
            catalog=given.catalog,
            events=given.events,
            directory=given.directory,
            clock=self._clock,
            producer_id=f"api-{self._run_id}",
            observe=self._metrics.memberships,
        )
        behind = Behind(
            accounts=given.accounts,
            catalog=given.catalog,
            delivery=given.delivery,
            durability=plane,
            history=plane,
            memberships=memberships,
            request_keys=given.request_keys,
            quotas=given.quotas,
            secrets=KeySecrets(keys),
            signer=signer,
            authenticator=authenticator,
            revoker=revoker,
            sender=FixedCodes() if self._lifted else LogCodeSender(self._say),
            new_code=fixed_code if self._lifted else new_code,
            clock=self._clock,
            observe=self._metrics.api,
            ready=watch.readiness,
        )
        rest = rest_app(
            behind,
            lifted=self._lifted,
            reuse_leeway_s=self._settings.refresh_reuse_leeway_seconds,
            trusted_proxies=self._settings.trusted_proxies,
            cors_origins=self._settings.cors_origins,
            docs={"/asyncapi.json": ("application/json", msgspec.json.encode(asyncapi_document(__version__)))},
        )
        return _Api(rest, Operator(given.accounts, revoker, signer, self._clock), authenticator)

    def _public(
        self, gateway: Gateway | None, given: ForGateway | None, api: "_Api | None", watch: Watch
    ) -> Front | None:
        """One port for what is here of WebSocket and REST."""
        if given is None:
            return None if api is None else self._front(None, api.rest.app)
        admission = Admission(
            self._authenticator(given.revocations, _needed(self._sessions)) if api is None else api.authenticator,
            given.directory,
            self._clock,
            lifted=self._lifted,
            origins=self._settings.origins or None,
            trusted_proxies=parse_networks(self._settings.trusted_proxies),
        )
        app = SmallApp(watch.public_routes()) if api is None else api.rest.app
        return self._front(gateway, app, admission)

    def _authenticator(self, revocations: Revocations, sessions: Sessions) -> Authenticator:
        return KeyAuthenticator(
            _needed(self._keys), revocations, sessions, self._clock, troubled=self._metrics.keys_troubled
        )

    def _front(self, gateway: Gateway | None, app: ASGIApp, admission: Admission | None = None) -> Front:
        """Without an admission it takes no sockets."""
        return Front(
            gateway or self._nobody,
            app,
            admission or no_admission(self._clock),
            self._clock,
            observe=self._metrics.front,
            sockets=admission is not None,
        )


@dataclass(frozen=True, slots=True)
class _Api:
    rest: Rest
    operator: Operator
    authenticator: Authenticator


def _needed(part: T | None) -> T:
    """The settings were checked: whoever needs this part has it."""
    assert part is not None
    return part

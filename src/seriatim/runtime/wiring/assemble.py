"""Puts a process together: its engines, the planes of its roles, REST, and the listeners. Nothing runs yet.

`engines` chooses the engines; the planes do not know which of them they got.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from seriatim import __version__
from seriatim.api.app import ApiDependencies, build_app, build_routes
from seriatim.api.core.router import RestApp
from seriatim.connection.gateway import Gateway
from seriatim.connection.listener.admission import Admission
from seriatim.connection.listener.server import Listener
from seriatim.connection.listener.state import ASGIApp, WebSocketEndpoint
from seriatim.domain import ids, limits
from seriatim.domain.addresses import parse_networks
from seriatim.durability.ingest import Ingest
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.code_sender import FixedCodes, LogCodeSender, fixed_code, new_code
from seriatim.engines.keys.authenticator import KeyAuthenticator
from seriatim.engines.keys.key_folder import KeyFolder, KeyFolderError
from seriatim.engines.keys.secrets import KeySecrets
from seriatim.engines.keys.tokens import Rs256Signer
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.revocations import Revocations
from seriatim.ports.tokens import Authenticator
from seriatim.protocol.asyncapi import document as asyncapi_document
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.health import FANOUT_GROUP, ProcessHealth
from seriatim.runtime.server.lifecycle import Listeners, Roles, ServerProcess, StartupError
from seriatim.runtime.server.plain_app import PlainApp
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.tools.operator import Operator
from seriatim.runtime.wiring.engine_set import DurabilityPlane, EngineSet, GatewayPorts, IngestListener
from seriatim.runtime.wiring.engines import open_engines
from seriatim.services.membership import MembershipService
from seriatim.services.otp import OtpService
from seriatim.services.sessions import SessionRevoker, SocketCloser
from seriatim.services.sign_in import SignInService

T = TypeVar("T")
PrintLine = Callable[[str], object]


async def assemble(
    settings: Settings, *, instance: str, print_line: PrintLine = lambda line: None, create: bool = True
) -> ServerProcess:
    """A server that is ready to start. `print_line` prints one-time codes; `create` makes missing folders and keys.

    Raises `StartupError` with the reason and what to do.
    """
    clock = SystemClock()
    metrics = Metrics(instance, settings.here)
    run_id = ids.new_ulid(clock.now_ms(), clock.random_bits)  # a process that starts again is another one
    engines = await open_engines(settings, metrics, clock, run_id, create=create)
    try:
        # Keys come second: none are made in a folder that is in use, or of another program.
        keys = _keys(settings, clock, create=create)
        return _Process(settings, metrics, clock, run_id, engines, keys, print_line).server()
    except KeyFolderError as error:
        await engines.close()
        raise StartupError(str(error)) from error
    except BaseException:
        await engines.close()
        raise


def _keys(settings: Settings, clock: Clock, *, create: bool) -> KeyFolder | None:
    """Only REST signs, so only REST makes keys; a gateway is content with the public ones."""
    if ProcessRole.API in settings.here:
        return KeyFolder.open(settings.keys_folder, create=create, clock=clock)
    if ProcessRole.GATEWAY in settings.here:
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
        engines: EngineSet,
        keys: KeyFolder | None,
        print_line: PrintLine,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._run_id = run_id
        self._engines = engines
        self._keys = keys
        self._print_line = print_line
        self._rate_limits_off = settings.env == "test"
        # Whom gateways and REST ask: ingest processes that were named, or else the one in here.
        self._plane: DurabilityPlane | None = engines.remote
        self._sessions: Sessions | None = engines.remote

    def server(self) -> ServerProcess:
        ingest, listener = self._ingest()
        at_gateway = self._engines.gateway_ports() if ProcessRole.GATEWAY in self._settings.here else None
        gateway = None if at_gateway is None else self._gateway(at_gateway)
        fanout = self._fanout()
        health = ProcessHealth(
            self._engines, self._metrics, self._clock, gateway=gateway, ingest=ingest, fanout=fanout, listener=listener
        )
        api = self._api(health)
        local = None
        if api is not None and not self._settings.is_distributed:
            local = PlainApp({**api.operator.routes(), **self._engines.operator_routes()})
        return ServerProcess(
            settings=self._settings,
            engines=self._engines,
            roles=Roles(
                gateway=gateway,
                ingest=ingest,
                listener=listener,
                fanout=fanout,
                operator=None if api is None else api.operator,
                otp=None if api is None else api.otp,
            ),
            listeners=Listeners(
                internal=self._listener(PlainApp(health.routes())),
                public=self._public(gateway, at_gateway, api, health),
                local=None if local is None else self._listener(local),
            ),
            health=health,
            keys_created=() if self._keys is None else self._keys.created,
        )

    # --- planes -------------------------------------------------------------------------------------------------------

    def _ingest(self) -> tuple[Ingest | None, IngestListener | None]:
        if ProcessRole.INGEST not in self._settings.here:
            return None, None
        given = self._engines.ingest_ports()
        ingest = Ingest(
            log=given.log,
            events=given.events,
            clock=self._clock,
            producer_id=f"ingest-{self._run_id}",
            atomic_store=given.atomic_store,
            user_chats=given.user_chats,
            observe=self._metrics.durability,
        )
        self._plane = self._plane or ingest
        self._sessions = self._sessions or given.sessions
        return ingest, self._ingest_listener(ingest, given.sessions)

    def _ingest_listener(self, ingest: Ingest, sessions: Sessions) -> IngestListener | None:
        if not self._settings.is_distributed or self._settings.rpc_address is None:
            return None
        from seriatim.runtime.wiring.grpc_ingest import ingest_listener

        return ingest_listener(self._settings, self._metrics, self._clock, ingest, sessions)

    def _gateway(self, given: GatewayPorts) -> Gateway:
        return Gateway(
            f"gateway-{self._run_id}",
            _needed(self._plane),
            given.directory,
            given.push,
            given.subscriber,
            self._clock,
            observe=self._metrics.gateway,
            flush_delay_turns=limits.FLUSH_DELAY_TURNS,
        )

    def _fanout(self) -> FanoutConsumer | None:
        if ProcessRole.FANOUT not in self._settings.here:
            return None
        consumer_id = f"fanout-{self._run_id}"
        given = self._engines.fanout_ports(FANOUT_GROUP, consumer_id)
        return FanoutConsumer(
            given.reader,
            given.dead_letters,
            given.roster,
            given.directory,
            given.push,
            self._clock,
            consumer_group=FANOUT_GROUP,
            consumer_id=consumer_id,
            observe=self._metrics.fanout,
        )

    # --- edges --------------------------------------------------------------------------------------------------------

    def _api(self, health: ProcessHealth) -> "_Api | None":
        if ProcessRole.API not in self._settings.here:
            return None
        keys, plane, given = _needed(self._keys), _needed(self._plane), self._engines.api_ports()
        secrets = KeySecrets(keys)
        authenticator = self._authenticator(given.revocations, given.accounts)
        revoker = SessionRevoker(given.accounts, given.revocations, SocketCloser(given.directory, given.push))
        memberships = MembershipService(
            catalog=given.catalog,
            events=given.events,
            directory=given.directory,
            clock=self._clock,
            producer_id=f"api-{self._run_id}",
            observe=self._metrics.memberships,
        )
        otp = OtpService(
            accounts=given.accounts,
            secrets=secrets,
            sender=FixedCodes() if self._rate_limits_off else LogCodeSender(self._print_line),
            new_code=fixed_code if self._rate_limits_off else new_code,
            clock=self._clock,
            observe=self._metrics.api,
        )
        sign_in = SignInService(
            accounts=given.accounts,
            secrets=secrets,
            signer=Rs256Signer(keys),
            authenticator=authenticator,
            revoker=revoker,
            clock=self._clock,
            observe=self._metrics.api,
            reuse_leeway_s=self._settings.refresh_reuse_leeway_seconds,
        )
        dependencies = ApiDependencies(
            accounts=given.accounts,
            catalog=given.catalog,
            delivery=given.delivery,
            durability=plane,
            history=plane,
            request_keys=given.request_keys,
            quotas=given.quotas,
            secrets=secrets,
            authenticator=authenticator,
            memberships=memberships,
            otp=otp,
            sign_in=sign_in,
            revoker=revoker,
            ready=health.readiness,
            clock=self._clock,
            observe=self._metrics.api,
        )
        app = build_app(
            dependencies,
            build_routes(dependencies),
            rate_limits_off=self._rate_limits_off,
            docs={"/asyncapi.json": ("application/json", msgspec.json.encode(asyncapi_document(__version__)))},
            trusted_proxies=self._settings.trusted_proxies,
            cors_origins=self._settings.cors_origins,
        )
        return _Api(app, otp, Operator(given.accounts, sign_in, self._clock), authenticator)

    def _public(
        self, gateway: Gateway | None, given: GatewayPorts | None, api: "_Api | None", health: ProcessHealth
    ) -> Listener | None:
        """One port for what is here of WebSocket and REST."""
        if gateway is None or given is None:
            return None if api is None else self._public_listener(api.app)
        admission = Admission(
            self._authenticator(given.revocations, _needed(self._sessions)) if api is None else api.authenticator,
            given.directory,
            self._clock,
            rate_limits_off=self._rate_limits_off,
            origins=self._settings.origins or None,
            trusted_proxies=parse_networks(self._settings.trusted_proxies),
        )
        app = PlainApp(health.public_routes(), keep_alive=False) if api is None else api.app
        endpoint = WebSocketEndpoint(gateway, admission, self._clock, observe=self._metrics.listener)
        return self._public_listener(app, endpoint)

    def _authenticator(self, revocations: Revocations, sessions: Sessions) -> Authenticator:
        return KeyAuthenticator(
            _needed(self._keys), revocations, sessions, self._clock, reload_failed=self._metrics.key_reload_failed
        )

    def _public_listener(self, app: ASGIApp, websocket: WebSocketEndpoint | None = None) -> Listener:
        return Listener(
            app,
            self._clock,
            websocket=websocket,
            observe=self._metrics.listener,
            connections_per_address_max=None if self._rate_limits_off else self._settings.connections_per_address_max,
            trusted_proxies=parse_networks(self._settings.trusted_proxies),
        )

    def _listener(self, app: ASGIApp) -> Listener:
        """For callers that the operator has chosen: there is no limit by address."""
        return Listener(app, self._clock, websocket=None, observe=self._metrics.listener)


@dataclass(frozen=True, slots=True)
class _Api:
    app: RestApp
    otp: OtpService
    operator: Operator
    authenticator: Authenticator


def _needed(part: T | None) -> T:
    """The settings were validated: a role has the parts that it needs."""
    assert part is not None
    return part

"""Which engine implements each port: chosen by the URLs of the settings, for the roles of this process.

A new engine is one module beside this one and one line in `open_engines`.
"""

from contextlib import AsyncExitStack

from seriatim.ports.clock import Clock
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import EMBEDDED, ENGINE_USERS, Settings
from seriatim.runtime.server.lifecycle import StartupError
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring.engine_set import EngineSet, EventEngine, RemoteDurabilityPlane, RoutingEngine, StoreEngine

_INGEST_USERS = (ProcessRole.GATEWAY, ProcessRole.API)


async def open_engines(
    settings: Settings, metrics: Metrics, clock: Clock, run_id: str, *, create: bool = True
) -> EngineSet:
    """Only what the roles of this process use is opened: a gateway has neither the address of the store nor of the log.

    `create` makes the data folder if it is missing. Raises `StartupError`. Engines in other processes are sent nothing
    yet: see `EngineSet.check_reachable`.
    """
    try:
        return await _open(settings, metrics, clock, run_id, create=create)
    except ModuleNotFoundError as missing:
        raise StartupError(
            f"these engines need more packages ({missing.name} is missing): "
            "pip install 'seriatim[server,dynamodb,kafka,redis,rpc]'"
        ) from missing
    except (ValueError, OSError) as error:
        raise StartupError(str(error)) from error


async def _open(settings: Settings, metrics: Metrics, clock: Clock, run_id: str, *, create: bool) -> EngineSet:
    """Engines of other processes are imported when they are chosen: a server on one folder does without them."""
    store: StoreEngine | None = None
    events: EventEngine | None = None
    routing: RoutingEngine | None = None
    remote: RemoteDurabilityPlane | None = None
    async with AsyncExitStack() as opened:
        if _used("store", settings) and settings.store == EMBEDDED:
            from seriatim.runtime.wiring.embedded_store import open_folder

            store, events = await open_folder(settings, metrics, clock, create=create)
            opened.push_async_callback(store.close)
        elif _used("store", settings):
            from seriatim.runtime.wiring.dynamodb_store import DynamoDbStore

            store = await DynamoDbStore.open(settings.store, settings.here, metrics, clock)
            opened.push_async_callback(store.close)
        if _used("events", settings) and settings.events != EMBEDDED:
            from seriatim.runtime.wiring.kafka_events import KafkaEvents

            events = KafkaEvents(settings, metrics, clock, run_id)
        if _used("directory", settings) and settings.directory == EMBEDDED:
            from seriatim.runtime.wiring.inprocess_routing import InprocessRouting

            routing = InprocessRouting(clock)
        elif _used("directory", settings):
            from seriatim.runtime.wiring.redis_routing import RedisRouting

            routing = RedisRouting(settings.directory, metrics, clock)
            opened.push_async_callback(routing.close)
        if settings.ingest and any(role in settings.here for role in _INGEST_USERS):
            from seriatim.runtime.wiring.grpc_ingest import remote_durability

            remote = remote_durability(settings, metrics, clock)
        opened.pop_all()
    return EngineSet(
        metrics, clock, store=store, events=events, routing=routing, remote=remote, tick_s=settings.sweep_seconds
    )


def _used(setting: str, settings: Settings) -> bool:
    return any(role in settings.here for role in ENGINE_USERS[setting])

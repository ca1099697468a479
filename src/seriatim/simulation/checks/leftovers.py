"""What idle processes may still hold at the end: their connections, and nothing else.

A leak loses no message, so no other check would see it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seriatim.domain.circuit_breaker import CircuitBreaker
from seriatim.engines.inprocess.directory import InProcessRegistry
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.cluster import GatewayServer
from seriatim.simulation.ingest_streams import IngestNode

INGEST_TASKS = 1  # the reconciler


def open_connections(gateways: Sequence[GatewayServer]) -> dict[str, None]:
    return {name: None for server in gateways if server.gateway is not None for name in server.gateway.connections}


def unfinished_tasks(nodes: Sequence[IngestNode], gateways: Sequence[GatewayServer]) -> list[asyncio.Task[Any]]:
    """What ingest processes and gateways are busy with at this moment."""
    at_ingest = [task for node in nodes if node.process is not None for task in node.process.tasks]
    at_gateways = [task for server in gateways if server.gateway is not None for task in server.gateway._tasks._tasks]
    return [task for task in (*at_ingest, *at_gateways) if not task.done()]


def check_leftovers(
    history: WorldHistory,
    nodes: Sequence[IngestNode],
    gateways: Sequence[GatewayServer],
    registry: InProcessRegistry,
    *,
    before: Mapping[str, None],
    old: Sequence[asyncio.Task[Any]],
) -> None:
    """`before`: the connections there were after the faults had ended. Their ends were noticed by every process.

    `old`: what was `unfinished_tasks` some seconds ago.
    """
    for found in (
        *_left_in_ingest(nodes, old),
        *_left_in_gateways(gateways, old),
        *_served_twice(gateways),
        *_misregistered(gateways, registry, before),
    ):
        history.violate("nothing_left_behind", found)


def _left_in_ingest(nodes: Sequence[IngestNode], old: Sequence[asyncio.Task[Any]]) -> Iterator[str]:
    for node in nodes:
        if node.ingest is None or node.process is None or not node.process.alive:
            continue
        if node.ingest.active_chats:
            yield f"{node.name} still works on {node.ingest.active_chats}"
        tasks = [task for task in node.process.tasks if task in old and not task.done()]
        if len(tasks) > INGEST_TASKS:
            yield f"{node.name} has {len(tasks)} tasks that do not end"
        if _undecided(node.ingest._breaker) or _undecided(node.ingest._store_breaker):
            yield f"{node.name}'s breaker did not close after a probe"


def _left_in_gateways(gateways: Sequence[GatewayServer], old: Sequence[asyncio.Task[Any]]) -> Iterator[str]:
    for server in gateways:
        gateway = server.gateway
        if gateway is None or not server.up:
            continue
        if tasks := [task for task in gateway._tasks._tasks if task in old]:
            yield f"{server.name} has {len(tasks)} tasks that do not end"
        if server.remote is not None and any(map(_undecided, server.remote.router._breakers.values())):
            yield f"{server.name}'s breaker did not close after a probe"
        connections = list(gateway.connections.values())
        watchers = [watcher for chat in gateway._head_probe._watchers.values() for watcher in chat]
        if any(watcher not in connections for watcher in watchers):
            yield f"{server.name} probes for a connection that is gone"
        chats = [connection._delivery for connection in connections]
        if any(watcher not in chats for watcher in gateway._new_chat_probe.watchers):
            yield f"{server.name} probes for new chats of a connection that is gone"


def _undecided(breaker: CircuitBreaker) -> bool:
    """A probe was let through; nothing is in flight any more, so it was answered, and nothing failed."""
    return breaker._probed_at is not None


def _served_twice(gateways: Sequence[GatewayServer]) -> Iterator[str]:
    """A device has one connection. Of two on gateways whose clocks disagree either may seem newer: both stay."""
    clocks_agree = all(server.process is None or server.process.clock.skew_s == 0.0 for server in gateways)
    seen: dict[tuple[str, str], str] = {}
    for server in gateways:
        for connection in server.gateway.connections.values() if server.gateway is not None else ():
            identity = (connection.identity.user_id, connection.identity.device_id)
            if identity in seen and (clocks_agree or seen[identity] == server.name):
                yield f"{identity[1]} has connections to {seen[identity]} and {server.name}"
            seen[identity] = server.name


def _misregistered(
    gateways: Sequence[GatewayServer], registry: InProcessRegistry, before: Mapping[str, None]
) -> Iterator[str]:
    """Every connection can be found. What could not be removed in trouble may still have to expire."""
    for server in gateways:
        if server.gateway is None or server.process is None or not server.process.alive:
            continue
        listed = registry.gateway_connections(server.process.lane, server.process.clock.now_ms())
        found = [registration.connection_id for registration in listed]
        for name in server.gateway.connections:
            if name not in found:
                yield f"{server.name} serves {name}, which is not registered"
        for name in found:
            if name not in server.gateway.connections and name in before:
                yield f"{name} is gone from {server.name}, and still registered"

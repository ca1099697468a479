"""`Directory` in Redis. `connection:{id}` alone decides whether a connection is live; the sets are indexes.

An empty `connection:{id}` means that the connection has ended, for as long as a renewal of it may still be in flight.

Each command uses one key, so that a sharded Redis would do; list and version of a chat share a hash tag and a script.
"""

from collections.abc import Mapping, Sequence

import msgspec

from seriatim.domain import limits
from seriatim.engines.redis.client import RedisClient, RedisDeadline
from seriatim.engines.redis.connection import Argument, Command, Reply
from seriatim.ports.directory import CachedMembers, Directory, Registration

_REGISTRATION_TTL_S = int(limits.REGISTRATION_TTL_S)
_MEMBER_CACHE_TTL_S = int(limits.MEMBER_CACHE_TTL_S)

_CACHE = """
redis.call('DEL', KEYS[1], KEYS[2])
if #ARGV > 2 then
  redis.call('SADD', KEYS[1], unpack(ARGV, 3))
  redis.call('EXPIRE', KEYS[1], ARGV[1])
  redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[1])
end
"""
# A connection that ended leaves an empty entry: a renewal that is applied after it finds that, and writes nothing.
_ENDED = ""
_REGISTER = """
if redis.call('GET', KEYS[1]) ~= '' then redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2]) end
"""
_CACHED = "return {redis.call('GET', KEYS[2]), redis.call('SMEMBERS', KEYS[1])}"


class RedisDirectory(Directory):
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def register(self, registrations: Sequence[Registration], *, timeout_s: float) -> None:
        """The same for a new connection and for a heartbeat: after a loss the heartbeat restores everything."""
        commands: list[Command] = [
            (
                "EVAL",
                _REGISTER,
                1,
                _connection_key(each.connection_id),
                _ENCODER.encode(_entry(each)),
                _REGISTRATION_TTL_S,
            )
            for each in registrations
        ]
        for key, connection_ids in _sets(registrations).items():
            commands += [("SADD", key, *connection_ids), ("EXPIRE", key, _REGISTRATION_TTL_S)]
        await self._client.call(commands, timeout_s=timeout_s)

    async def unregister(self, registration: Registration, *, timeout_s: float) -> None:
        connection_id = registration.connection_id
        commands: list[Command] = [
            ("SET", _connection_key(connection_id), _ENDED, "EX", _REGISTRATION_TTL_S),
            ("SREM", _user_key(registration.user_id), connection_id),
            ("SREM", _gateway_key(registration.gateway_id), connection_id),
        ]
        await self._client.call(commands, timeout_s=timeout_s)

    async def connections(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, Sequence[Registration]]:
        asked = list(dict.fromkeys(user_ids))
        found = await self._live_connections([_user_key(user_id) for user_id in asked], RedisDeadline(timeout_s))
        mine = {
            user_id: [each for each in registrations if each.user_id == user_id]
            for user_id, registrations in zip(asked, found, strict=True)
        }
        return {user_id: registrations for user_id, registrations in mine.items() if registrations}

    async def gateway_connections(self, gateway_id: str, *, timeout_s: float) -> Sequence[Registration]:
        """For operators: what a gateway has, or what a dead one left behind."""
        [found] = await self._live_connections([_gateway_key(gateway_id)], RedisDeadline(timeout_s))
        return [each for each in found if each.gateway_id == gateway_id]

    async def cached_members(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, CachedMembers]:
        commands: list[Command] = [("EVAL", _CACHED, 2, *_member_keys(chat_id)) for chat_id in chat_ids]
        found: dict[str, CachedMembers] = {}
        for chat_id, reply in zip(chat_ids, await self._client.call(commands, timeout_s=timeout_s), strict=True):
            match reply:
                case [bytes(version), [_, *_] as user_ids]:
                    found[chat_id] = CachedMembers(int(version), tuple(_texts(user_ids)))
        return found

    async def cache_members(self, chat_id: str, members: CachedMembers, *, timeout_s: float) -> None:
        given: tuple[Argument, ...] = (_MEMBER_CACHE_TTL_S, members.version, *members.user_ids)
        await self._client.call([("EVAL", _CACHE, 2, *_member_keys(chat_id), *given)], timeout_s=timeout_s)

    async def forget_members(self, chat_id: str, *, timeout_s: float) -> None:
        commands: list[Command] = [("DEL", key) for key in _member_keys(chat_id)]
        await self._client.call(commands, timeout_s=timeout_s)

    async def _live_connections(self, keys: Sequence[str], deadline: RedisDeadline) -> list[list[Registration]]:
        """The live connections in each of these sets. Expired ones are removed from the sets."""
        sets = await self._client.call([("SMEMBERS", key) for key in keys], timeout_s=deadline.left_s())
        listed = [(key, connection_id) for key, ids in zip(keys, sets, strict=True) for connection_id in _texts(ids)]
        entries = await self._entries([connection_id for _, connection_id in listed], deadline)
        living: dict[str, list[Registration]] = {key: [] for key in keys}
        dead: list[tuple[str, str]] = []
        for (key, connection_id), registration in zip(listed, entries, strict=True):
            if registration is None:
                dead.append((key, connection_id))
            else:
                living[key].append(registration)
        for key, registration in await self._remove_dead(dead, deadline):
            living[key].append(registration)
        return list(living.values())

    async def _remove_dead(
        self, dead: list[tuple[str, str]], deadline: RedisDeadline
    ) -> list[tuple[str, Registration]]:
        """Removes expired connections from their sets, and adds those back that turn out to be live.

        A heartbeat may write its entry between the read and the removal. It writes the entry before the set: so a
        connection that is removed before it has an entry is still going to be added.
        """
        if not dead:
            return []
        await self._client.call([("SREM", key, each) for key, each in dead], timeout_s=deadline.left_s())
        entries = await self._entries([connection_id for _, connection_id in dead], deadline)
        alive = [(key, each) for (key, _), each in zip(dead, entries, strict=True) if each is not None]
        commands: list[Command] = []
        for key, each in alive:
            commands += [("SADD", key, each.connection_id), ("EXPIRE", key, _REGISTRATION_TTL_S)]
        await self._client.call(commands, timeout_s=deadline.left_s())
        return alive

    async def _entries(self, connection_ids: Sequence[str], deadline: RedisDeadline) -> list[Registration | None]:
        commands: list[Command] = [("GET", _connection_key(each)) for each in connection_ids]
        replies = await self._client.call(commands, timeout_s=deadline.left_s())
        return [_registration(each, reply) for each, reply in zip(connection_ids, replies, strict=True)]


class _RegistrationEntry(msgspec.Struct, frozen=True):
    """docs/spec/websocket.md#keys-and-channels. The key says which connection it is."""

    user_id: str
    device_id: str
    session_id: str
    gateway_id: str
    connected_at: str


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_RegistrationEntry)


def _entry(registration: Registration) -> _RegistrationEntry:
    return _RegistrationEntry(
        user_id=registration.user_id,
        device_id=registration.device_id,
        session_id=registration.session_id,
        gateway_id=registration.gateway_id,
        connected_at=registration.connected_at,
    )


def _registration(connection_id: str, reply: Reply) -> Registration | None:
    """None for an entry that is missing, has ended, or cannot be read."""
    if not reply or not isinstance(reply, bytes):
        return None
    try:
        entry = _DECODER.decode(reply)
    except msgspec.MsgspecError:
        return None
    return Registration(
        connection_id=connection_id,
        user_id=entry.user_id,
        device_id=entry.device_id,
        session_id=entry.session_id,
        gateway_id=entry.gateway_id,
        connected_at=entry.connected_at,
    )


def _sets(registrations: Sequence[Registration]) -> dict[str, list[str]]:
    """The connections to add to each set: a heartbeat renews hundreds of one gateway at once."""
    sets: dict[str, list[str]] = {}
    for each in registrations:
        for key in (_user_key(each.user_id), _gateway_key(each.gateway_id)):
            sets.setdefault(key, []).append(each.connection_id)
    return sets


def _texts(reply: Reply) -> list[str]:
    return [each.decode() for each in reply if isinstance(each, bytes)] if isinstance(reply, list) else []


def _connection_key(connection_id: str) -> str:
    return f"connection:{connection_id}"


def _user_key(user_id: str) -> str:
    return f"user_connections:{user_id}"


def _gateway_key(gateway_id: str) -> str:
    return f"gateway_connections:{gateway_id}"


def _member_keys(chat_id: str) -> tuple[str, str]:
    """The braces are part of the names: they keep both on one shard, where one script reaches them."""
    return f"chat_members:{{{chat_id}}}", f"chat_members_version:{{{chat_id}}}"

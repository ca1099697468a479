"""The four topics of a distributed deployment (docs/spec/data.md#topics): made once, and compared with what is there.

Settings are corrected by `create`. A wrong number of partitions or replicas is not: the first would tear the order of
chats apart, the second takes a plan and a person.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, ServiceUnavailable
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES
from seriatim.ports.topics import Topic, TopicControl

_GIB = 1024**3

OFFSETS = "__consumer_offsets"  # Kafka's own, and the same for all prefixes
PARTITIONS: Mapping[str, int] = {MESSAGES: 64, MEMBERSHIPS: 16, CHATS: 16, DEAD_LETTERS: 8}


class TopicProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How many copies there are, and how many of them must have an event before it counts as stored."""

    replicas: int
    in_sync: int


PROFILES: Mapping[str, TopicProfile] = {
    "cluster": TopicProfile(replicas=3, in_sync=2),
    "single": TopicProfile(replicas=1, in_sync=1),
}


class TopicsNotReady(ServiceUnavailable):
    """The log accepted the request and has not completed it yet. The command may be run again."""


class FragileTopics(InternalError):
    """The topics do not keep what the event log promises: an acknowledged event can be lost with one broker."""


class TopicDifference(msgspec.Struct, frozen=True):
    """What differs from the definition, and what to do about it."""

    topic: str
    what: str
    expected: str
    found: str
    advice: str = "`seriatim topics create` mends it"


async def create(
    control: TopicControl, profile: TopicProfile, *, prefix: str = "", report: Callable[[str], None] = lambda line: None
) -> Sequence[str]:
    """Creates the topics that are missing and corrects the settings of others. Returns the names of the new ones."""
    wanted = definitions(profile, prefix)
    there = await control.describe([topic.name for topic in wanted], timeout_s=limits.KAFKA_ADMIN_S)
    made: list[str] = []
    for topic in wanted:
        found = there.get(topic.name)
        if found is None:
            await control.create(topic, timeout_s=limits.KAFKA_ADMIN_S)
            made.append(topic.name)
            report(f"{topic.name}: made")
        elif any(found.settings.get(name) != value for name, value in topic.settings.items()):
            await control.adjust(topic, timeout_s=limits.KAFKA_ADMIN_S)
            report(f"{topic.name}: settings mended")
    await _wait_until_there(control, made)
    return made


async def verify(control: TopicControl, profile: TopicProfile, *, prefix: str = "") -> Sequence[TopicDifference]:
    """How the topics and the brokers' own settings differ from what they should be; empty when all is well."""
    wanted = definitions(profile, prefix)
    there = await control.describe([topic.name for topic in wanted], timeout_s=limits.KAFKA_ADMIN_S)
    found = [each for topic in wanted for each in compare(topic, there.get(topic.name))]
    return [*found, *compare_defaults(profile, await control.defaults(timeout_s=limits.KAFKA_ADMIN_S))]


async def weaknesses(control: TopicControl, *, prefix: str = "") -> Sequence[TopicDifference]:
    """Why the loss of one broker would lose events or stop sends; empty when it would not. More copies are welcome.

    The topic of committed offsets is checked, too, once it exists: without it fanout would begin again.
    """
    there = await control.describe([*[prefix + topic for topic in PARTITIONS], OFFSETS], timeout_s=limits.KAFKA_ADMIN_S)
    return [each for topic in there.values() for each in _weaknesses(topic)]


def _weaknesses(topic: Topic) -> Iterator[TopicDifference]:
    wanted = PROFILES["cluster"]
    copies = 2 if topic.name == OFFSETS else wanted.replicas
    if topic.replicas < copies:
        yield TopicDifference(topic.name, "replicas", f"{copies} or more", str(topic.replicas), _REASSIGN)
    if topic.name == OFFSETS:
        return
    in_sync = topic.settings.get("min.insync.replicas", "not set")
    if not in_sync.isdecimal() or int(in_sync) < wanted.in_sync:
        yield TopicDifference(topic.name, "min.insync.replicas", f"{wanted.in_sync} or more", in_sync)
    unclean = topic.settings.get("unclean.leader.election.enable", "not set")
    if unclean != "false":
        yield TopicDifference(topic.name, "unclean.leader.election.enable", "false", unclean)


def definitions(profile: TopicProfile, prefix: str = "") -> list[Topic]:
    return [
        Topic(
            name=prefix + topic,
            partitions=count,
            replicas=profile.replicas,
            settings={
                **_RETENTION[topic],
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "message.timestamp.type": "CreateTime",
                "min.insync.replicas": str(profile.in_sync),
                "unclean.leader.election.enable": "false",
            },
        )
        for topic, count in PARTITIONS.items()
    ]


def defaults(profile: TopicProfile) -> Mapping[str, str]:
    """Of the brokers: the settings of a topic that is created outside this command, or automatically."""
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(profile.replicas),
        "min.insync.replicas": str(profile.in_sync),
        "unclean.leader.election.enable": "false",
    }


def compare(wanted: Topic, there: Topic | None) -> list[TopicDifference]:
    name = wanted.name
    if there is None:
        return [TopicDifference(name, "topic", "there", "missing")]
    found: list[TopicDifference] = []
    if there.partitions != wanted.partitions:
        found.append(
            TopicDifference(name, "partitions", str(wanted.partitions), str(there.partitions), _NEVER_IN_PLACE)
        )
    if there.replicas != wanted.replicas:
        found.append(TopicDifference(name, "replicas", str(wanted.replicas), str(there.replicas), _REASSIGN))
    for setting, value in wanted.settings.items():
        if there.settings.get(setting) != value:
            found.append(TopicDifference(name, setting, value, there.settings.get(setting, "not set")))
    return found


def compare_defaults(profile: TopicProfile, found: Mapping[str, str]) -> list[TopicDifference]:
    return [
        TopicDifference("(brokers)", setting, value, found.get(setting, "not set"), _SERVER_PROPERTIES)
        for setting, value in defaults(profile).items()
        if found.get(setting) != value
    ]


async def _wait_until_there(control: TopicControl, names: Sequence[str]) -> None:
    """The controller answers first; brokers need a while to make the files of so many partitions."""
    try:
        async with asyncio.timeout(limits.TOPICS_THERE_S):
            while True:
                there = await control.describe(names, timeout_s=limits.KAFKA_ADMIN_S)
                if len(there) == len(names):
                    return
                await asyncio.sleep(limits.TOPICS_POLL_S)
    except TimeoutError:
        raise TopicsNotReady(
            f"not all topics are there after {limits.TOPICS_THERE_S:.0f} s; run the command again later"
        ) from None


_NEVER_IN_PLACE = (
    "never changed in place, because chats would move and lose their order: freeze sends, drain the consumers, make a "
    "new topic, switch the producers"
)
_REASSIGN = "use kafka-reassign-partitions"
_SERVER_PROPERTIES = "set it in the brokers' server.properties"


def _retention(seconds: int, gibibytes: int) -> Mapping[str, str]:
    """Whichever is reached first. The log serves readers that are a little behind; the store has everything."""
    return {"retention.ms": str(seconds * 1000), "retention.bytes": str(gibibytes * _GIB)}


_RETENTION: Mapping[str, Mapping[str, str]] = {
    MESSAGES: _retention(limits.EVENT_RETENTION_S, 100),
    MEMBERSHIPS: _retention(limits.EVENT_RETENTION_S, 10),
    CHATS: _retention(limits.EVENT_RETENTION_S, 10),
    DEAD_LETTERS: {
        **_retention(limits.DEAD_LETTER_RETENTION_S, 50),
        "max.message.bytes": str(limits.KAFKA_RECORD_BYTES_MAX),
    },
}

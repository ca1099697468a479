"""One consumer group as the broker sees it: its members, the partitions of each, the committed offsets.

A partition that moves is revoked from its member first, and granted again only when that member released it or was
expelled.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import msgspec

from seriatim.ports.event_log import Fenced, Partition


class MemberKey(msgspec.Struct, frozen=True, order=True):
    """One membership of one reader. An expelled reader joins again with the next epoch: late calls are recognised."""

    consumer_id: str
    reader: int
    epoch: int


class Grant(msgspec.Struct, frozen=True):
    """One grant of a partition to one member. `number` is unique, so a late commit or release cannot touch the next."""

    partition: Partition
    number: int
    start: int


class Assignment(msgspec.Struct, frozen=True):
    """The partitions of a member, and which of them to release. `version` grows with every change."""

    version: int
    held: tuple[Grant, ...]
    revoke: tuple[Partition, ...]


class GroupCoordinator:
    """Synchronous: the engine calls it at the moment a request is applied."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = {
            topic: [Partition(topic, number) for number in range(count)] for topic, count in partitions.items()
        }
        self._members: dict[MemberKey, _Member] = {}
        self._epochs: dict[int, int] = {}
        self._owners: dict[Partition, MemberKey] = {}
        self._holders: dict[Partition, MemberKey] = {}
        self._grants = 0
        self.topics: dict[str, None] = {}
        self.committed: dict[Partition, int] = {}

    def join(self, key: MemberKey, topics: Sequence[str], wake: Callable[[], None]) -> None:
        """A later epoch replaces an earlier one of the same reader; a late call changes nothing."""
        latest = self._epochs.get(key.reader, -1)
        if key.epoch <= latest:
            return
        self._epochs[key.reader] = key.epoch
        self._remove([member for member in self._members if member.reader == key.reader])
        self.topics.update(dict.fromkeys(topics))
        self._members[key] = _Member(tuple(topics), wake)
        self._rebalance()

    def leave(self, key: MemberKey) -> None:
        if key in self._members:
            self._remove([key])
            self._rebalance()

    def expel(self, consumer_id: str) -> None:
        """What a session timeout does. The member, if it still lives, learns of it at its next poll."""
        gone = [key for key in self._members if key.consumer_id == consumer_id]
        expelled = [self._members[key] for key in gone]
        self._remove(gone)
        self._rebalance()
        for member in expelled:
            member.alert()

    def knows(self, key: MemberKey) -> bool:
        return key in self._members

    def assignment(self, key: MemberKey, seen: int, released: Sequence[Grant]) -> Assignment | None:
        """Takes back what the member released, grants what is free for it. None if the member has this version."""
        member = self._members[key]
        for grant in released:
            self._take_back(key, grant)
        if member.version == seen:
            return None
        for partition in member.target:
            if partition not in self._holders:
                self._holders[partition] = key
                self._grants += 1
                member.grants[partition] = Grant(partition, self._grants, self.committed.get(partition, 0))
        revoke = tuple([partition for partition in member.grants if self._owners.get(partition) != key])
        return Assignment(member.version, tuple(member.grants.values()), revoke)

    def commit(self, key: MemberKey, grant: Grant, next_offset: int, turn: int) -> bool:
        """Says whether the offset moved: a commit that was overtaken by a later one (`turn`) changes nothing."""
        member = self._members.get(key)
        if member is None or member.grants.get(grant.partition) != grant:
            raise Fenced(f"{key.consumer_id} does not hold {grant.partition.topic}/{grant.partition.number}")
        if turn < member.commits.get(grant.partition, 0):
            return False
        member.commits[grant.partition] = turn
        self.committed[grant.partition] = next_offset
        return True

    def arm(self, key: MemberKey) -> None:
        """The member found nothing and sleeps: wake it, once, when there is something."""
        self._members[key].armed = True

    def appended(self, partition: Partition) -> None:
        holder = self._holders.get(partition)
        if holder is not None:
            self._members[holder].alert()

    def holders(self) -> Mapping[Partition, str]:
        return {partition: key.consumer_id for partition, key in sorted(self._holders.items())}

    def _take_back(self, key: MemberKey, grant: Grant) -> None:
        member = self._members[key]
        if member.grants.get(grant.partition) != grant:
            return
        del member.grants[grant.partition]
        del self._holders[grant.partition]
        self._members[self._owners[grant.partition]].change()

    def _remove(self, keys: Sequence[MemberKey]) -> None:
        for key in keys:
            for partition in self._members.pop(key).grants:
                del self._holders[partition]

    def _rebalance(self) -> None:
        self._owners = {}
        targets: dict[MemberKey, list[Partition]] = {key: [] for key in sorted(self._members)}
        for topic, partitions in self._partitions.items():
            subscribers = {
                key: [partition for partition in self._members[key].target if partition.topic == topic]
                for key in targets
                if topic in self._members[key].topics
            }
            for key, share in balance(partitions, subscribers).items():
                targets[key].extend(share)
                self._owners.update(dict.fromkeys(share, key))
        for key, target in targets.items():
            # Every member polls again: its target may stay the same while one of its partitions has become free.
            self._members[key].target = tuple(target)
            self._members[key].change()


def balance(
    partitions: Sequence[Partition], current: Mapping[MemberKey, Sequence[Partition]]
) -> Mapping[MemberKey, Sequence[Partition]]:
    """Even shares, different by one at most. A member keeps its partitions as far as its share goes."""
    if not current:
        return {}
    least, extra = divmod(len(partitions), len(current))
    ranked = sorted(current, key=lambda member: (-len(current[member]), member))
    sizes = {member: least + (rank < extra) for rank, member in enumerate(ranked)}
    shares = {member: list(current[member][: sizes[member]]) for member in ranked}
    taken = {partition for share in shares.values() for partition in share}
    free = iter([partition for partition in partitions if partition not in taken])
    for member in ranked:
        shares[member].extend(islice(free, sizes[member] - len(shares[member])))
    return shares


class _Member:
    def __init__(self, topics: tuple[str, ...], wake: Callable[[], None]) -> None:
        self.topics = topics
        self.target: tuple[Partition, ...] = ()
        self.grants: dict[Partition, Grant] = {}
        self.commits: dict[Partition, int] = {}
        self.version = 0
        self.armed = False
        self._wake = wake

    def change(self) -> None:
        self.version += 1
        self.alert()

    def alert(self) -> None:
        if self.armed:
            self.armed = False
            self._wake()

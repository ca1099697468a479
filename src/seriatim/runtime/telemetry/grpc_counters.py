"""What the wire between processes tells, as numbers, and as lines in the log where a person may have to look."""

import logging

from seriatim.engines.grpc.observer import RpcObserver
from seriatim.runtime.telemetry.counters import LOG_INTERVAL_S
from seriatim.runtime.telemetry.logs import ThrottledLogger, described, log_event

_log = logging.getLogger("seriatim")


class RpcCounters(RpcObserver):
    """`dials`: this process asks ingest processes. `listens`: it is one."""

    def __init__(self) -> None:
        self.dials = self.listens = False
        self.peers: dict[str, None] = {}
        self.lost = self.unknown = self.unreachable_count = self.late_batches = self.failures = 0
        self._throttled = ThrottledLogger(_log, every_s=LOG_INTERVAL_S)

    def joined(self, address: str) -> None:
        self.peers[address] = None
        log_event(_log, logging.INFO, "ingest_joined", address=address)

    def left(self, address: str, why: str, unanswered: int) -> None:
        self.peers.pop(address, None)
        self.lost += 1
        self.unknown += unanswered
        log_event(_log, logging.WARNING, "ingest_left", address=address, why=why, unanswered=unanswered)

    def unreachable(self, address: str, why: str) -> None:
        self.unreachable_count += 1
        self._throttled.log(logging.WARNING, "ingest_unreachable", address=address, why=why)

    def late(self, seconds: float) -> None:
        self.late_batches += 1
        self._throttled.log(logging.WARNING, "drafts_late", seconds=round(seconds, 3))

    def failed(self, method: str, error: BaseException) -> None:
        self.failures += 1
        self._throttled.log(logging.ERROR, "bug_between_processes", method=method, **described(error))

"""What the gRPC client and server report, as numbers, and as log lines where an operator may have to act."""

import logging

from seriatim.engines.grpc.observer import GrpcObserver
from seriatim.runtime.telemetry.counters import LOG_INTERVAL_S
from seriatim.runtime.telemetry.logs import ThrottledLogger, described, log_event

_log = logging.getLogger("seriatim")


class GrpcCounters(GrpcObserver):
    """`dials`: this process calls ingest processes. `listens`: it is one."""

    def __init__(self) -> None:
        self.dials = self.listens = False
        self.peers: dict[str, None] = {}
        self.lost = self.unknown = self.unreachable_count = self.late_batches = self.failures = 0
        self._throttled = ThrottledLogger(_log, every_s=LOG_INTERVAL_S)

    def connected(self, address: str) -> None:
        self.peers[address] = None
        log_event(_log, logging.INFO, "ingest_connected", address=address)

    def disconnected(self, address: str, why: str, unanswered: int) -> None:
        self.peers.pop(address, None)
        self.lost += 1
        self.unknown += unanswered
        log_event(_log, logging.WARNING, "ingest_disconnected", address=address, why=why, unanswered=unanswered)

    def unreachable(self, address: str, why: str) -> None:
        self.unreachable_count += 1
        self._throttled.log(logging.WARNING, "ingest_unreachable", address=address, why=why)

    def delayed(self, seconds: float) -> None:
        self.late_batches += 1
        self._throttled.log(logging.WARNING, "drafts_delayed", seconds=round(seconds, 3))

    def call_failed(self, method: str, error: BaseException) -> None:
        self.failures += 1
        self._throttled.log(logging.ERROR, "grpc_call_failed", method=method, **described(error))

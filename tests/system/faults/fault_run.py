"""One fault under load: when it began and ended, how long it took until everything was as before, what users saw.

The times are measured by clients and by the health endpoints, and written down if SERIATIM_FAULTS_REPORT names a file.
"""

import asyncio
import json
import os
import time
from collections import Counter
from http.client import HTTPException
from pathlib import Path

from tests.system.deployment import Deployment, Process
from tests.system.faults.fault_list import Fault
from tests.system.faults.write_load import PATIENCE_S, POLL_S, Moment, WriteLoad
from tests.system.users import User

REPORT = "SERIATIM_FAULTS_REPORT"
REST_PACE_S = 0.25
STEADY_ACKS = 3  # one may be of a message that waited for the end of the fault, while new ones are still refused


class FaultRun:
    """`load` goes on all the while. Times are seconds since the fault was over."""

    def __init__(self, deployment: Deployment, load: WriteLoad, rest: "RestPoller") -> None:
        self.load = load
        self._deployment = deployment
        self._poller = rest
        self._began = time.monotonic()
        self._ended: float | None = None
        self._restarted: list[tuple[Process, int]] = []
        self._measured: dict[str, float] = {}

    def mark_begin(self) -> None:
        """The fault comes now, and not with the block."""
        self._began = time.monotonic()

    def mark_end(self) -> None:
        """From here on recovery is measured. The end of the block, unless it is said before."""
        if self._ended is None:
            self._ended = time.monotonic()

    def expect_restart(self, process: Process) -> None:
        """Say it before it ends."""
        self._restarted.append((process, process.lives()))

    async def until_noticed(self) -> None:
        """Returns once a user got an error."""
        before = len(self.load.errors)
        await self.load.until(lambda: len(self.load.errors) > before, "a user gets an error")

    async def until_recovered(self) -> None:
        """Returns once everything is as before: every chat, every user, every process."""
        ready = asyncio.create_task(self._ready_s())
        try:
            await self.load.until(lambda: self._acks() is not None, "everybody can write again")
            await self.load.until(lambda: self._arrivals() is not None, "everybody sees something new in every chat")
            await self._poller.answers()
            try:
                self._measured["ready_s"] = await asyncio.wait_for(ready, PATIENCE_S)
            except TimeoutError:
                parts = {each.name: each.ready() for each in self._deployment.all}
                raise AssertionError(f"not ready within {PATIENCE_S:g} s: {parts}") from None
        finally:
            ready.cancel()
        (first_ack, all_acks), (first_delivery, all_deliveries) = self._acks() or (0, 0), self._arrivals() or (0, 0)
        self._measured |= {"first_ack_s": first_ack, "all_acks_s": all_acks}
        self._measured |= {"first_delivery_s": first_delivery, "all_deliveries_s": all_deliveries}

    def report(self, fault: Fault) -> None:
        path = os.environ.get(REPORT)
        if not path:
            return
        devices = self.load.devices
        row = {
            "fault": fault.name,
            "lasted_s": -self._since(self._began),
            **self._measured,
            "longest_wait_s": max(
                took for each in devices for began, took in each.waits if began + took >= self._began
            ),
            "errors": Counter(what for each in devices for at, what in each.errors if at >= self._began),
            "rest_errors": Counter(self._poller.errors),
            "messages": sum(len(each.acked_at) for each in devices),
        }
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    # --- recovery -----------------------------------------------------------------------------------------------------

    def _since(self, moment: float) -> float:
        assert self._ended is not None
        return moment - self._ended

    def _acks(self) -> tuple[float, float] | None:
        """To the very first ack; and to when everybody could write again, without another refusal after it."""
        steady: list[float] = []
        for device in self.load.writers:
            last_error = max((at for at, _ in device.errors), default=0.0)
            acked = sorted(moment.at for moment in device.acked_at.values() if self._since(moment.at) > 0)
            after = [at for at in acked if at > last_error]
            if len(after) < STEADY_ACKS:
                return None
            steady.append(self._since(after[0]))
        return min(self._since(moment.at) for moment in self._acked().values()), max(steady)

    def _arrivals(self) -> tuple[float, float] | None:
        """To the first arrival of a message acknowledged since, at another gateway than its writer's, if they still
        have two; and to when everybody has seen such a message in every chat."""
        acked, between_gateways = self._acked(), list[float]()
        firsts: dict[tuple[int, str], float] = {}
        for number, device in enumerate(self.load.devices):
            for message_id, ack in acked.items():
                seen = device.seen_at.get(message_id)
                if seen is not None and self._since(seen.at) > 0:
                    place = (number, ack.chat_id)
                    firsts[place] = min(seen.at, firsts.get(place, seen.at))
                    between_gateways += [seen.at] if seen.port != ack.port else []
        if len(firsts) < len(self.load.devices) * len(self.load.chats):
            return None
        return self._since(min(between_gateways or firsts.values())), self._since(max(firsts.values()))

    def _acked(self) -> dict[str, Moment]:
        """By message: all since the fault was over."""
        return {
            message_id: moment
            for device in self.load.devices
            for message_id, moment in device.acked_at.items()
            if self._since(moment.at) > 0
        }

    async def _ready_s(self) -> float:
        while await asyncio.to_thread(self._unready):  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(POLL_S)
        return self._since(time.monotonic())

    def _unready(self) -> list[str]:
        down = [process.name for process, lives in self._restarted if process.lives() <= lives]
        return down or [each.name for each in self._deployment.all if not each.is_ready()]


class RestPoller:
    """A user who asks for the own chats over and over. `errors`: what came instead."""

    def __init__(self, user: User) -> None:
        self.errors: list[str] = []
        self._person = user
        self._answers = 0
        self._over = False
        self._asking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "RestPoller":
        self._asking = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        assert self._asking is not None
        await self._asking

    async def answers(self) -> None:
        """Returns once it has answered again."""
        before = self._answers
        async with asyncio.timeout(PATIENCE_S):
            while self._answers == before:  # noqa: ASYNC110 - the same clock as everything here
                await asyncio.sleep(POLL_S)

    async def _ask(self) -> None:
        while not self._over:
            try:
                reply = await asyncio.to_thread(self._person.call, "GET", "/chats")
            except (OSError, HTTPException):
                self.errors.append("no answer")
            else:
                if reply.status == 200:
                    self._answers += 1
                else:
                    self.errors.append(str(reply.status))
            await asyncio.sleep(REST_PACE_S)

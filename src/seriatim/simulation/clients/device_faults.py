"""Faults of a device and decisions of its user: power lost between two writes, messages refused for good.

Drawn from a random generator of its own, so that a seed's world is the same up to the first of these events.
"""

from enum import StrEnum
from random import Random

from seriatim.simulation.faults.plan import Faults

POWER_OFF_MAX_S = 3.0  # at most, until the device starts again
DECISION_MAX_S = 3.0  # at most, until a user has decided about a refusal


class PowerLost(Exception):
    """The device lost power before a write of its store. Nothing of its session runs any more."""


class Decision(StrEnum):
    """What a user does about a message that was refused for good."""

    DISCARD = "gives up"
    RESEND = "insists on"
    KEEP = "does not answer about"


class DeviceFaults:
    """The plan for all devices of one seed. After the world has healed nothing of it happens."""

    def __init__(self, random: Random, faults: Faults) -> None:
        self._random = random
        self._faults = faults

    def before_write(self) -> None:
        """Raises PowerLost if this write does not happen."""
        rate = self._faults.profile.power_loss
        if rate and self._faults.active and self._random.random() < rate:
            self._faults.count("power lost before a write")
            raise PowerLost

    def power_off_s(self) -> float:
        return 0.05 + POWER_OFF_MAX_S * self._random.random()

    def decision(self) -> Decision:
        if not self._faults.active:
            return Decision.KEEP
        chance = self._random.random()
        return Decision.DISCARD if chance < 0.5 else Decision.RESEND if chance < 0.75 else Decision.KEEP

    def decision_delay_s(self) -> float:
        return DECISION_MAX_S * self._random.random() * self._random.random()

"""How often a test repeats itself: enough to find a mistake in `make test`, and far more in `make soak`."""

import os
from typing import TypeVar

T = TypeVar("T")

SOAK = os.environ.get("TEST_SOAK") == "on"


def repeat(usual: T, *, soak: T) -> T:
    """`soak`: how often, how many or which in the long form."""
    return soak if SOAK else usual

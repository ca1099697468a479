"""Seriatim: everyone in a chat sees every message, once, in the same order, whatever fails."""

__version__ = "0.1.0"

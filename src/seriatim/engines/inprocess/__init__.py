"""Engines that live and die with one process: routing, pushes, quotas, revocations, the clock."""

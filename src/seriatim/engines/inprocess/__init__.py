"""Engines whose data live in the memory of one process: directory, push, quotas, revocations, the clock."""

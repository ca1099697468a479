"""Engines that live and die with one process: quotas, revocations, and one-time codes for development and tests."""

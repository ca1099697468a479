"""Directory, push, revocations and quotas in Redis. All of it may be lost at any time."""

"""Redis: who is connected where, pushes to gateways, revocations and rate limits. All of it may vanish at any time."""

"""PLANE 3: who is online hears of it at once. Best effort: what it misses, the gateways fill from durability."""

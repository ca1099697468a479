"""PLANE 3: pushes events to members who are online. Best effort: gateways fill what it misses from durability."""

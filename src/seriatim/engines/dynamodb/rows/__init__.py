"""How each kind of row is written and read."""

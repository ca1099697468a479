"""`seriatim check`: the invariants that stored data can show."""

"""The system with one rule removed, once per rule: each must be caught."""

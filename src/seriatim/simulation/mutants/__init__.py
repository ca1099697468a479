"""The system with one rule removed, once per rule, by plane. Each mutant must be caught."""

"""Pure rules: no await, no I/O, no clock. What a message, a chat and an error are."""

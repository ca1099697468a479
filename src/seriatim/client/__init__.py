"""The client's state machine, without sockets: imports `protocol` and `domain` only."""

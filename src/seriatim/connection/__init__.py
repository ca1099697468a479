"""The connection plane: sockets, what waits to go out on them, and when they close. Promises nothing durable."""

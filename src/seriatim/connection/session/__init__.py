"""One client's connection: what it sends, what it is sent, and how far."""

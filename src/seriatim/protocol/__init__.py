"""The wire without sockets: frames, their codec, and the session machines of both ends."""

"""Sockets, HTTP/1.1 and the WebSocket handshake: from an accepted socket to an admitted connection."""

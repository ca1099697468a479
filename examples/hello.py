"""Says one thing in a chat, then listens: hello.py CHAT_ID ACCESS_TOKEN TEXT"""

import json
import sys
import uuid

from websockets.sync.client import connect

chat, token, text = sys.argv[1:]
sync = {"type": "sync_request", "chat_id": chat, "last_acked_sequence": 0}
send = {"type": "send_message", "chat_id": chat, "client_message_id": str(uuid.uuid4()), "content": text}
with connect("ws://127.0.0.1:8080/v1/ws", additional_headers={"Authorization": f"Bearer {token}"}) as socket:
    socket.recv()  # the greeting
    socket.send(json.dumps(sync))
    socket.send(json.dumps(send))
    for frame in map(json.loads, socket):
        print(*frame.get("messages", [frame]) or ["nothing yet"], sep="\n", flush=True)
        if frame.get("has_more"):
            socket.send(json.dumps({**sync, "last_acked_sequence": frame["next_sequence"] - 1}))

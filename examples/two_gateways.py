"""Ada and Bob talk through two gateways of `seriatim cluster --env test`: two_gateways.py [REST GATEWAY GATEWAY]"""

import json
import sys
import time
import urllib.request
import uuid
from typing import Any

from websockets.sync.client import connect

rest, first, second = sys.argv[1:] or ("127.0.0.1:8080", "127.0.0.1:8090", "127.0.0.1:8091")


def call(path: str, body: dict[str, Any], **headers: str) -> Any:
    request = urllib.request.Request(f"http://{rest}/api/v1{path}", json.dumps(body).encode(), method="POST")
    for name, value in {"Content-Type": "application/json", **headers}.items():
        request.add_header(name, value)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["data"]


def sign_in(phone_number: str) -> tuple[str, str]:
    """User and access token. With --env test the code is always 000000."""
    device = str(uuid.uuid4())
    call("/auth/request-otp", {"phone_number": phone_number})
    body = {"phone_number": phone_number, "otp": "000000", "device_id": device}
    found = call("/auth/verify-otp", body, **{"X-Device-ID": device})
    return found["user"]["user_id"], found["tokens"]["access_token"]


(_, ada), (bob_id, bob) = sign_in("+4915112345601"), sign_in("+4915112345602")
body = {"type": "group", "name": "us", "member_ids": [bob_id]}
chat = call("/chats", body, Authorization=f"Bearer {ada}")["chat_id"]
with (
    connect(f"ws://{first}/v1/ws", additional_headers={"Authorization": f"Bearer {ada}"}) as here,
    connect(f"ws://{second}/v1/ws", additional_headers={"Authorization": f"Bearer {bob}"}) as there,
):
    here.recv(), there.recv()  # the greetings
    there.send(json.dumps({"type": "sync_request", "chat_id": chat, "last_acked_sequence": 0}))
    there.recv()  # nothing was written yet
    began = time.monotonic()
    text = {"chat_id": chat, "client_message_id": str(uuid.uuid4()), "content": "Can you hear me over there?"}
    here.send(json.dumps({"type": "send_message", **text}))
    ack = json.loads(here.recv())
    print(f"Ada,  at {first}: acknowledged as number {ack['sequence']} after {time.monotonic() - began:.3f} s")
    message = json.loads(there.recv())
    print(f"Bob,  at {second}: {message['content']!r} after {time.monotonic() - began:.3f} s")

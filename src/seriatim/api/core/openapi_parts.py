"""The fixed parts of the OpenAPI document: headers, security, the introduction; and examples made out of schemas."""

from collections.abc import Mapping
from typing import Any

from seriatim.domain import limits

Json = dict[str, Any]

ABOUT = """
Manage people, chats and history. Messages are sent and received over the WebSocket at `/v1/ws`.

**Sign in**: ask for a code with `POST /api/v1/auth/request-otp`, exchange it with `POST /api/v1/auth/verify-otp`,
and send the access token as `Authorization: Bearer <token>`.

**Answers** are `{"data": ...}`, lists with `"pagination"` beside it. **Errors** are
`{"error": {"code", "message", "details"?, "request_id"}}`; the message says what to do next.

**Limits** are reported with every answer in `X-RateLimit-*`; after a 429 or 503 wait for `Retry-After`.

Every path below `/api/v1` also answers below `/api`.
""".strip()

TAGS = [
    {"name": "auth", "description": "Sign in, stay signed in, sign out."},
    {"name": "users", "description": "Yourself and others."},
    {"name": "chats", "description": "Groups and direct chats."},
    {"name": "members", "description": "Who is in a chat, and as what."},
    {"name": "messages", "description": "History. Sending is done over the WebSocket."},
    {"name": "delivery", "description": "Who has received what."},
    {"name": "sessions", "description": "The devices you are signed in on."},
    {"name": "service", "description": "Health and capabilities."},
]

SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "An access token. It lives for an hour; exchange the refresh token for a new one.",
    }
}

_ID_SCHEMA = {"type": "string", "minLength": 1, "maxLength": limits.ID_CHARS_MAX, "pattern": "^[A-Za-z0-9_-]+$"}
_SEQUENCE_SCHEMA = {"type": "integer", "minimum": 1, "maximum": limits.SEQUENCE_MAX}
_UUID4 = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
_UUID_SCHEMA = {
    "type": "string",
    "format": "uuid",
    "pattern": _UUID4,
    "examples": ["7d9f2c1e-5b3a-4c8d-9e6f-1a2b3c4d5e6f"],
}

REQUEST_HEADERS: Mapping[str, Json] = {
    "X-Device-ID": {
        "name": "X-Device-ID",
        "in": "header",
        "required": True,
        "description": "The UUID (version 4) that this device made for itself.",
        "schema": _UUID_SCHEMA,
        "example": "7d9f2c1e-5b3a-4c8d-9e6f-1a2b3c4d5e6f",
    },
    "Idempotency-Key": {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "A UUID (version 4) per intention: repeat the request with it, and it is done once. 24 hours.",
        "schema": _UUID_SCHEMA,
    },
    "X-Request-ID": {
        "name": "X-Request-ID",
        "in": "header",
        "required": False,
        "description": "A UUID (version 4) to recognise this request by; anything else is replaced by a new one.",
        "schema": {"type": "string"},
    },
}


def path_parameter(name: str) -> Json:
    """The parameter in the braces of a path: an id, or a sequence in a chat."""
    schema = _SEQUENCE_SCHEMA if name == "sequence" else _ID_SCHEMA
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _header(description: str, schema: Json, *, required: bool) -> Json:
    return {"description": description, "required": required, "schema": schema}


HEADERS: Mapping[str, Json] = {
    "X-Request-ID": _header("Yours, or one that we made.", {"type": "string", "pattern": _UUID4}, required=True),
    "X-RateLimit-Limit": _header("Of the tightest limit that applied.", {"type": "integer"}, required=True),
    "X-RateLimit-Remaining": _header("How many requests are left of it.", {"type": "integer"}, required=True),
    "X-RateLimit-Reset": _header("When its window ends, in Unix seconds.", {"type": "integer"}, required=True),
    "Retry-After": _header("Seconds to wait.", {"type": "integer", "minimum": 1}, required=True),
    "WWW-Authenticate": _header("How to sign in.", {"type": "string"}, required=True),
    "Allow": _header("The methods this path takes.", {"type": "string"}, required=True),
    "X-Idempotent-Replay": _header("`true`: this was done before.", {"type": "string"}, required=False),
}


def headers_with(status: int) -> Json:
    """The headers of every answer, and those that only go with this status."""
    names = ["X-Request-ID", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
    names += {401: ["WWW-Authenticate"], 405: ["Allow"], 429: ["Retry-After"], 503: ["Retry-After"]}.get(status, [])
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def example_of(schema: Mapping[str, Any], components: Mapping[str, Mapping[str, Any]], *, whole: bool = True) -> Any:
    """A value that fits: the author's example, the default, or the smallest one of the kind.

    `whole`: with every field. Otherwise what may be left out is, unless we have something to say there.
    """
    if "$ref" in schema:
        return example_of(components[schema["$ref"].rpartition("/")[2]], components, whole=whole)
    for given in ("examples", "enum"):
        if schema.get(given):
            return schema[given][0]
    if "default" in schema:
        return schema["default"]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], components)
    match schema.get("type"):
        case "object":
            required = schema.get("required", [])
            return {
                name: _EXAMPLES.get(name) or example_of(each, components, whole=whole)
                for name, each in schema.get("properties", {}).items()
                if whole or name in required or name in _EXAMPLES
            }
        case "array":
            return [example_of(schema["items"], components)] if "items" in schema else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "string":
            return "text"
    return None


_EXAMPLES = {
    "access_token": "eyJhbGciOiJSUzI1NiIs...",
    "chat_id": "chat_01KG6W2P9XW3Y8T5H4C7R0ZQVB",
    "client_message_id": "c0ffee00-1234-4abc-8def-0123456789ab",
    "content": "Hello, world",
    "created_by": "user_01KG6VZ3M4N5P6Q7R8S9T0V1W2",
    "device_id": "7d9f2c1e-5b3a-4c8d-9e6f-1a2b3c4d5e6f",
    "display_name": "Ada",
    "member_ids": ["user_01KG6VZ9A1B2C3D4E5F6G7H8J9"],
    "message_id": "msg_01KG6W5T7K8M9N0P1Q2R3S4T5V",
    "name": "Friday evening",
    "sender_id": "user_01KG6VZ3M4N5P6Q7R8S9T0V1W2",
    "session_id": "sess_01KG6W0A1B2C3D4E5F6G7H8J9K",
    "user_id": "user_01KG6VZ9A1B2C3D4E5F6G7H8J9",
}

"""Health, capabilities, and the documentation that the server carries."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from seriatim.api.core.route import Access
from seriatim.domain.errors import ServiceUnavailable
from tests.support.rest import DEVICE, PHONE, RestClient, RestServer

WEB = Path(__file__).parents[3] / "src" / "seriatim" / "web" / "docs"


@pytest.mark.parametrize("path", ["/health", "/api/v1/health", "/health/ready"])
async def test_security_h1_a_health_check_which_is_never_counted_keeps_no_connection(
    rest: RestClient, path: str
) -> None:
    assert (await rest("GET", path)).headers["connection"] == "close"


async def test_health_is_a_bare_object_at_every_address(rest: RestClient) -> None:
    for path in ("/health", "/api/v1/health", "/api/health"):
        reply = await rest("GET", path)
        assert (reply.status, reply.json["status"], list(reply.json)) == (200, "healthy", ["status", "timestamp"])


async def test_ready_when_every_part_is_and_503_with_the_missing_ones_otherwise(
    server: RestServer, rest: RestClient
) -> None:
    server.checks = {"store": True, "events": True}
    assert (await rest("GET", "/health/ready")).json == {"status": "ready", "checks": server.checks}
    server.checks = {"store": True, "events": False}
    reply = await rest("GET", "/health/ready")
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert reply.json == {"status": "unready", "checks": {"store": True, "events": False}}


async def test_not_ready_when_readiness_is_unknown(server: RestServer) -> None:
    async def ready() -> Any:
        raise ServiceUnavailable("down")

    assert (await server.client(ready=ready)("GET", "/health/ready")).status == 503


async def test_capabilities_tell_a_new_client_what_it_needs(rest: RestClient) -> None:
    for path in ("/api/v1/", "/api/v1", "/api/", "/api"):
        found = (await rest("GET", path)).data
        assert found["api_version"] == "v1"
        assert found["documentation_url"] == "/docs"
        assert found["capabilities"] == {
            "max_message_size_bytes": 4096,
            "max_chat_members": 100,
            "max_chats_per_user": 1000,
            "supported_content_types": ["text/plain"],
            "auth_methods": ["phone_otp"],
            "websocket_protocol_version": 1,
        }


# --- the OpenAPI document --------------------------------------------------------------------------------------------


@pytest.fixture
async def document(rest: RestClient) -> Any:
    return (await rest("GET", "openapi.json")).json


async def test_the_same_document_is_served_as_json_and_as_yaml(rest: RestClient) -> None:
    as_json, as_yaml = await rest("GET", "openapi.json"), await rest("GET", "openapi.yaml")
    assert as_json.headers["content-type"] == "application/json"
    assert as_yaml.headers["content-type"] == "application/yaml"
    assert as_json.body == as_yaml.body


def test_every_route_is_documented_with_every_status_it_may_answer(server: RestServer, document: Any) -> None:
    for route in server.routes():
        operation = document["paths"]["/api/v1" + route.path][route.method.lower()]
        statuses = [int(each) for each in operation["responses"]]
        wanted = [400, 405, 429, 500, 503, *route.answers, *[each.http_status for each in route.errors]]
        wanted += [401] if route.access is Access.SIGNED_IN else []
        wanted += [404] if "{" in route.path else []
        wanted += [413, 415] if route.method != "GET" else []
        assert statuses == sorted(set(wanted)), route.path
        assert ("security" in operation) == (route.access is Access.SIGNED_IN)
        assert re.findall(r"{(\w+)}", route.path) == [
            each["name"] for each in operation["parameters"] if each["in"] == "path"
        ]


def test_every_reference_in_the_document_leads_somewhere(document: Any) -> None:
    references = re.findall(r"'\$ref': '#/([^']+)'", str(document))
    assert references
    for reference in references:
        found = document
        for key in reference.split("/"):
            found = found[key]


def test_the_document_says_which_headers_a_request_must_have(document: Any) -> None:
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    parameters = [each for operation in operations for each in operation["parameters"] if each["in"] == "header"]
    required = {each["name"]: each["required"] for each in parameters}
    assert required == {"X-Device-ID": True, "X-Request-ID": False, "Idempotency-Key": False}


def test_the_document_asks_for_a_device_id_where_a_session_is_opened_or_renewed(document: Any) -> None:
    asking = [
        path
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if "X-Device-ID" in [each["name"] for each in operation["parameters"]]
    ]
    assert asking == ["/api/v1/auth/verify-otp", "/api/v1/auth/refresh"]


def test_a_query_parameter_is_documented_with_its_type_bounds_default_and_meaning(document: Any) -> None:
    parameters = document["paths"]["/api/v1/chats"]["get"]["parameters"]
    assert {each["name"]: each for each in parameters if each["in"] == "query" and each["name"] != "updated_since"} == {
        "limit": {
            "name": "limit",
            "in": "query",
            "required": False,
            "description": "How many items at most.",
            "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        },
        "cursor": {
            "name": "cursor",
            "in": "query",
            "required": False,
            "description": "Goes on where another page ended. Opaque, and of use only at the same endpoint.",
            "schema": {"type": "string"},
        },
    }


def test_queries_and_empty_bodies_are_no_schemas_of_the_document(server: RestServer, document: Any) -> None:
    queries = [route.query.__name__ for route in server.routes()]
    assert "Nothing" in queries
    assert not document["components"]["schemas"].keys() & {*queries}


def test_operation_ids_are_unique(document: Any) -> None:
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(ids) == len(dict.fromkeys(ids))


def test_the_examples_fit_their_schemas(document: Any) -> None:
    for path in document["paths"].values():
        for operation in path.values():
            contents = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in [each["content"]["application/json"] for each in contents if "content" in each]:
                schema = {**content["schema"], "components": document["components"]}
                jsonschema.validate(content["example"], schema)


async def test_real_answers_fit_the_document(server: RestServer, rest: RestClient, document: Any) -> None:
    await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    body = {"phone_number": PHONE, "otp": await server.delivered_code(), "device_id": DEVICE}
    signed_in = await rest("POST", "auth/verify-otp", body, device=DEVICE)
    token = signed_in.data["tokens"]["access_token"]
    answers = [
        ("post", "/api/v1/auth/verify-otp", signed_in),
        ("get", "/api/v1/users/me", await rest("GET", "users/me", token=token)),
        ("get", "/api/v1/users/me", await rest("GET", "users/me")),
        ("get", "/api/v1/sessions", await rest("GET", "sessions", token=token)),
        ("patch", "/api/v1/users/me", await rest("PATCH", "users/me", {"display_name": ""}, token=token)),
        ("get", "/health/ready", await rest("GET", "/health/ready")),
        ("get", "/api/v1/", await rest("GET", "")),
    ]
    for method, path, reply in answers:
        response = document["paths"][path][method]["responses"][str(reply.status)]
        if "$ref" in response:
            response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
        schema = {**response["content"]["application/json"]["schema"], "components": document["components"]}
        jsonschema.validate(reply.json, schema)
        for name in response["headers"]:
            assert name.lower() in reply.headers


# --- the page --------------------------------------------------------------------------------------------------------


async def test_the_page_and_all_it_loads_come_from_here(rest: RestClient) -> None:
    page = await rest("GET", "/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    loaded = re.findall(r'(?:src|href)="(/docs/[^"]+)"', page.body.decode())
    script = (await rest("GET", "/docs/docs.js")).body.decode()
    loaded += re.findall(r'from "(/docs/[^"]+)"', script)
    assert len(loaded) == 3
    for path in loaded:
        reply = await rest("GET", path)
        assert (reply.status, reply.body[:1] != b"") == (200, True)


def test_the_page_names_no_other_host_and_writes_no_markup() -> None:
    for path in sorted(WEB.iterdir()):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(https?:)?//[a-z]+\.", text.replace("http://www.w3.org", "")), path
        assert "innerHTML" not in text


async def test_further_documents_are_served_where_they_belong(server: RestServer) -> None:
    rest = server.client(docs={"/asyncapi.json": ("application/json", b'{"asyncapi":"3.0.0"}')})
    reply = await rest("GET", "/asyncapi.json")
    assert (reply.headers["content-type"], reply.json) == ("application/json", {"asyncapi": "3.0.0"})

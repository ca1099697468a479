"""The OpenAPI document, written from the table of routes: what is parsed and answered is what is documented.

Pure: types in, plain data out. `msgspec` knows the schema of each type; statuses and headers come from the frame.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seriatim import __version__
from seriatim.api.core.errors import ErrorBody
from seriatim.api.core.openapi_parts import (
    ABOUT,
    HEADERS,
    REQUEST_HEADERS,
    SECURITY,
    TAGS,
    example_of,
    headers_with,
    path_parameter,
)
from seriatim.api.core.route import Access, Nothing, Pagination, Route
from seriatim.domain.errors import (
    BadRequest,
    InternalError,
    KeyReused,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    SeriatimError,
    ServerBusy,
    ServiceUnavailable,
    Unauthorized,
    UnsupportedMediaType,
    ValidationFailed,
)

Json = dict[str, Any]


def openapi_document(mounted: Sequence[tuple[str, Route]]) -> Json:
    """`mounted` is every documented route with its full path."""
    schemas = _Schemas([route for _, route in mounted])
    failures: Json = {}
    paths: dict[str, Json] = {}
    for path, route in mounted:
        paths.setdefault(path, {})[route.method.lower()] = _operation(path, route, schemas, failures)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Seriatim",
            "version": __version__,
            "summary": "Everyone in a chat sees every message, once, in the same order.",
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": TAGS,
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": failures,
            "headers": HEADERS,
            "securitySchemes": SECURITY,
        },
    }


class _Schemas:
    """The schema of every type that a route names, by type."""

    def __init__(self, routes: Sequence[Route]) -> None:
        named = [type_ for route in routes for type_ in (route.body, route.query, *route.answers.values())]
        self._types = list({repr(each): each for each in (ErrorBody, Pagination, *named)}.values())
        schemas, self.components = msgspec.json.schema_components(
            self._types, ref_template="#/components/schemas/{name}"
        )
        self._schemas = {repr(each): schema for each, schema in zip(self._types, schemas, strict=True)}
        self._drop_queries(routes)

    def of(self, type_: Any) -> Json:
        return self._schemas[repr(type_)]

    def fields(self, type_: type) -> tuple[Mapping[str, Json], Sequence[str]]:
        """A struct's properties, and which of them are required."""
        schema = msgspec.json.schema_components([type_], ref_template="#/components/schemas/{name}")[1]
        whole = schema[type_.__name__]
        return whole.get("properties", {}), whole.get("required", [])

    def example(self, type_: Any, *, whole: bool) -> object:
        return example_of(self.of(type_), self.components, whole=whole)

    def _drop_queries(self, routes: Sequence[Route]) -> None:
        """Queries are documented parameter by parameter, and nothing is nothing."""
        for name in [Nothing.__name__, *[route.query.__name__ for route in routes]]:
            self.components.pop(name, None)


def _operation(path: str, route: Route, schemas: _Schemas, failures: Json) -> Json:
    operation: Json = {
        "operationId": _operation_id(path, route),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": _parameters(path, route, schemas),
        "responses": _responses(route, schemas, failures),
    }
    if route.description:
        operation["description"] = route.description
    if route.access is Access.SIGNED_IN:
        operation["security"] = [{"bearer": []}]
    if route.body is not Nothing:
        content = {"schema": schemas.of(route.body), "example": schemas.example(route.body, whole=False)}
        operation["requestBody"] = {"required": not route.body_optional, "content": {"application/json": content}}
    return operation


def _operation_id(path: str, route: Route) -> str:
    words = re.findall(r"[a-zA-Z0-9]+", path.removeprefix("/api"))
    return "_".join([route.method.lower(), *words])


def _parameters(path: str, route: Route, schemas: _Schemas) -> list[Json]:
    found: list[Json] = [path_parameter(name) for name in re.findall(r"{(\w+)}", path)]
    if route.query is not Nothing:
        properties, required = schemas.fields(route.query)
        found += [_query_parameter(name, schema, name in required) for name, schema in properties.items()]
    if route.path in ("/auth/verify-otp", "/auth/refresh"):
        found.append(REQUEST_HEADERS["X-Device-ID"])
    if KeyReused in route.errors:
        found.append(REQUEST_HEADERS["Idempotency-Key"])
    found.append(REQUEST_HEADERS["X-Request-ID"])
    return found


def _query_parameter(name: str, schema: Json, required: bool) -> Json:
    parameter: Json = {"name": name, "in": "query", "required": required}
    alternatives = [each for each in schema.get("anyOf", []) if each.get("type") != "null"]
    plain = {key: value for key, value in schema.items() if key not in ("anyOf", "description", "default")}
    if len(alternatives) == 1:  # null is not something a query can say: the parameter is left out instead
        plain |= alternatives[0]
    if schema.get("default") is not None:
        plain["default"] = schema["default"]
    description = schema.get("description") or plain.pop("description", None)
    if description:
        parameter["description"] = description
    return {**parameter, "schema": plain}


# --- answers ---------------------------------------------------------------------------------------------------------


def _responses(route: Route, schemas: _Schemas, failures: Json) -> Json:
    """Many routes fail alike: each way to fail is written once, into `failures`, and referred to."""
    responses = {str(status): _success(status, type_, route, schemas) for status, type_ in route.answers.items()}
    by_status: dict[int, list[str]] = {}
    for each in _errors_of(route):
        codes = by_status.setdefault(each.http_status, [])
        if each.code not in codes:
            codes.append(each.code)
    for status, codes in sorted(by_status.items()):
        if str(status) not in responses:
            name = ".".join(codes)
            failures[name] = _failure(status, codes, schemas)
            responses[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(responses.items()))


def _success(status: int, type_: Any, route: Route, schemas: _Schemas) -> Json:
    response: Json = {"description": _MEANINGS[status], "headers": headers_with(status)}
    if KeyReused in route.errors:
        response["headers"]["X-Idempotent-Replay"] = {"$ref": "#/components/headers/X-Idempotent-Replay"}
    if type_ is Nothing:
        return response
    schema: Json = schemas.of(type_)
    example = schemas.example(type_, whole=True)
    if not route.bare:
        properties: Json = {"data": schema}
        example = {"data": example}
        if route.paged:
            properties["pagination"] = schemas.of(Pagination)
            example["pagination"] = {"has_more": False, "next_cursor": None, "prev_cursor": None}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
    response["content"] = {"application/json": {"schema": schema, "example": example}}
    return response


def _errors_of(route: Route) -> Sequence[type[SeriatimError]]:
    """What the frame may answer before, instead of, or around the handler; then the handler's own."""
    found: list[type[SeriatimError]] = [MethodNotAllowed, InternalError, BadRequest, ValidationFailed]
    if route.access is not Access.UNMETERED:
        found += [RateLimited, ServiceUnavailable, ServerBusy]
    if route.access is Access.SIGNED_IN:
        found.append(Unauthorized)
    if "{" in route.path:
        found.append(NotFound)
    if route.method != "GET":
        found += [PayloadTooLarge, UnsupportedMediaType]
    return [*found, *route.errors]


def _failure(status: int, codes: Sequence[str], schemas: _Schemas) -> Json:
    example = {
        "error": {
            "code": codes[0],
            "message": "what to do next",
            "request_id": "0b9fbb1c-3a52-4c1e-8f0e-5a1f5f4c2d10",
        }
    }
    narrowed = {
        "allOf": [
            schemas.of(ErrorBody),
            {"properties": {"error": {"properties": {"code": {"enum": list(codes)}}}}},
        ]
    }
    return {
        "description": f"{_MEANINGS[status]}: {', '.join(codes)}",
        "headers": headers_with(status),
        "content": {"application/json": {"schema": narrowed, "example": example}},
    }


_MEANINGS = {
    200: "Done",
    201: "Created",
    204: "Done; there is nothing to say",
    400: "The request is wrong",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not there",
    405: "This path does not take that method",
    409: "Something else was first",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "Well-formed, but impossible",
    429: "Too often",
    500: "Our mistake",
    503: "Not available right now; try again",
}

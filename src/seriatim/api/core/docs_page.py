"""The documentation that is served with the API: the OpenAPI document, a page that renders it, and what others add.

Everything comes from this process: the page loads nothing from elsewhere, and its policy forbids it to.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from seriatim.api.core.route import Access, ApiRequest, ApiResponse, Nothing, Route

Document = tuple[str, bytes]  # media type and content

_PAGE = {
    "/docs": ("docs/index.html", "text/html; charset=utf-8"),
    "/docs/docs.css": ("docs/docs.css", "text/css; charset=utf-8"),
    "/docs/docs.js": ("docs/docs.js", "text/javascript; charset=utf-8"),
    "/docs/render.js": ("docs/render.js", "text/javascript; charset=utf-8"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def documents(openapi: Mapping[str, object], base: str, more: Mapping[str, Document]) -> Mapping[str, Document]:
    """By path. JSON is YAML, so the same text serves those who ask for YAML."""
    text = msgspec.json.format(msgspec.json.encode(openapi), indent=2)
    web = files("seriatim").joinpath("web")
    page = {path: (kind, web.joinpath(name).read_bytes()) for path, (name, kind) in _PAGE.items()}
    return {
        f"{base}/openapi.json": ("application/json", text),
        f"{base}/openapi.yaml": ("application/yaml", text),
        **page,
        **more,
    }


def document_routes(found: Mapping[str, Document]) -> Sequence[Route]:
    return [_route(path, media_type, content) for path, (media_type, content) in found.items()]


def _route(path: str, media_type: str, content: bytes) -> Route:
    answer = ApiResponse(data=content, headers=_headers(media_type))

    async def handler(request: ApiRequest[Any, Any]) -> ApiResponse:
        return answer

    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary="Documentation",
        tag="service",
        access=Access.PUBLIC,
        answers={200: Nothing},
    )


def _headers(media_type: str) -> dict[str, str]:
    headers = {"content-type": media_type, "cache-control": "no-cache"}
    if media_type.startswith("text/html"):
        headers |= {"content-security-policy": _POLICY, "referrer-policy": "no-referrer"}
    return headers

"""The REST edge as one ASGI application: the table of routes, the frame around each, and the pages that explain them.

Every path is there twice, below /api/v1 and below /api; health and documentation also stand at the root.
"""

from collections.abc import Mapping, Sequence

from starlette.routing import Route as Path
from starlette.routing import Router

from seriatim.api.core.dispatch import RequestPipeline, Scope, Send
from seriatim.api.core.docs_page import Document, document_routes, documents
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.openapi import openapi_document
from seriatim.api.core.parse import Receive
from seriatim.api.core.rate_limit import RateLimiter
from seriatim.api.core.route import Route
from seriatim.api.health import HealthResource, Ready, capability_routes, health_routes
from seriatim.api.sessions import SessionActivity
from seriatim.domain.addresses import parse_networks
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.ports.quotas import Quotas
from seriatim.ports.tokens import Authenticator

BASE = "/api/v1"
ALIAS = "/api"


def build_app(
    routes: Sequence[Route],
    *,
    authenticator: Authenticator,
    quotas: Quotas,
    accounts: Accounts,
    clock: Clock,
    ready: Ready,
    observe: ApiObserver | None = None,
    rate_limits_off: bool = False,
    docs: Mapping[str, Document] | None = None,
    trusted_proxies: Sequence[str] = (),
    cors_origins: Sequence[str] = (),
) -> "RestApp":
    """`rate_limits_off` switches rate limits off. `docs` are further documents by path: media type and bytes.

    `trusted_proxies` are addresses or networks whose X-Forwarded-For is believed; `cors_origins` are the origins of
    web pages that may call us, `*` for all.
    """
    pipeline = RequestPipeline(
        authenticator=authenticator,
        rate_limiter=RateLimiter(quotas, clock, rate_limits_off=rate_limits_off),
        used=SessionActivity(accounts, clock).used,
        clock=clock,
        observe=observe or ApiObserver(),
        trusted_proxies=parse_networks(trusted_proxies),
        cors_origins=cors_origins,
    )
    health = HealthResource(ready, clock)
    api = [*routes, *capability_routes(health), *health_routes(health)]
    document = openapi_document(
        [(BASE + each.path, each) for each in api] + [(each.path, each) for each in health_routes(health)]
    )
    pages = document_routes(documents(document, BASE, docs or {}))
    # "/api/v1" itself stands for "/api/v1/".
    mounted = [(prefix, each) for prefix in (BASE, ALIAS) for each in capability_routes(health)]
    mounted += [(prefix + each.path, each) for prefix in (BASE, ALIAS) for each in api]
    mounted += [(each.path, each) for each in (*health_routes(health), *pages)]
    mounted += [(ALIAS + each.path.removeprefix(BASE), each) for each in pages if each.path.startswith(BASE)]
    return RestApp(pipeline, mounted)


class RestApp:
    def __init__(self, pipeline: RequestPipeline, mounted: Sequence[tuple[str, Route]]) -> None:
        paths: dict[str, dict[str, Route]] = {}
        for path, route in mounted:
            paths.setdefault(path, {})[route.method] = route
        # What is spelled out wins over what stands in braces: /users/me is not the user called me.
        ordered = sorted(paths, key=lambda path: path.count("{"))
        self._router = Router(
            routes=[Path(path, _Resource(pipeline, path, paths[path])) for path in ordered],
            redirect_slashes=False,
            default=_Resource(pipeline, "unmatched", {}),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)


class _Resource:
    """One path with all its methods. An ASGI application, so that the router asks nothing about methods."""

    def __init__(self, pipeline: RequestPipeline, template: str, operations: Mapping[str, Route]) -> None:
        self._pipeline = pipeline
        self._template = template
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._pipeline.serve(scope, receive, send, self._template, self._operations)

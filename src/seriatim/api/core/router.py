"""The table of routes as one ASGI application: each path with its methods, behind the request pipeline."""

from collections.abc import Mapping, Sequence

from starlette.routing import Route as Path
from starlette.routing import Router

from seriatim.api.core.dispatch import RequestPipeline, Scope, Send
from seriatim.api.core.parse import Receive
from seriatim.api.core.route import Route


class RestApp:
    """`mounted` holds routes with their whole paths."""

    def __init__(self, pipeline: RequestPipeline, mounted: Sequence[tuple[str, Route]]) -> None:
        paths: dict[str, dict[str, Route]] = {}
        for path, route in mounted:
            paths.setdefault(path, {})[route.method] = route
        # Fixed paths win over paths with braces: /users/me is not the user called me.
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

"""The REST API put together: what it depends on, all its routes, and the ASGI application that serves them.

The server and the tests build it here, from the engines that each of them has. A new resource is one line in
`build_routes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seriatim.api import auth, chat_list, chats, delivery, find_message, members, messages, sessions, users
from seriatim.api.access import ChatAccess
from seriatim.api.chat_views import ChatViews
from seriatim.api.core.cursor import CursorCodec
from seriatim.api.core.dispatch import RequestPipeline
from seriatim.api.core.docs_page import Document, document_routes, documents
from seriatim.api.core.idempotency import IdempotencyGuard
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.openapi import openapi_document
from seriatim.api.core.rate_limit import RateLimiter
from seriatim.api.core.route import Route
from seriatim.api.core.router import RestApp
from seriatim.api.display_names import DisplayNames
from seriatim.api.health import HealthResource, Ready, capability_routes, health_routes
from seriatim.api.history_reader import HistoryReader
from seriatim.domain.addresses import parse_networks
from seriatim.ports.accounts import Accounts
from seriatim.ports.catalog import Catalog
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability, History
from seriatim.ports.message_log import DeliveryState
from seriatim.ports.quotas import Quotas
from seriatim.ports.request_keys import RequestKeys
from seriatim.ports.secrets import Secrets
from seriatim.ports.tokens import Authenticator
from seriatim.services.membership import MembershipService
from seriatim.services.otp import OtpService
from seriatim.services.sessions import SessionActivity, SessionRevoker
from seriatim.services.sign_in import SignInService

BASE = "/api/v1"
ALIAS = "/api"


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiDependencies:
    """All ports and services that the REST API calls. `otp` runs tasks: the owner closes it."""

    accounts: Accounts
    catalog: Catalog
    delivery: DeliveryState
    durability: Durability
    history: History
    request_keys: RequestKeys
    quotas: Quotas
    secrets: Secrets
    authenticator: Authenticator
    memberships: MembershipService
    otp: OtpService
    sign_in: SignInService
    revoker: SessionRevoker
    ready: Ready
    clock: Clock
    observe: ApiObserver


def build_routes(dependencies: ApiDependencies) -> list[Route]:
    """Every route but health and documentation, which `build_app` adds."""
    accounts, catalog, clock = dependencies.accounts, dependencies.catalog, dependencies.clock
    memberships, marks = dependencies.memberships, dependencies.delivery
    access, names, cursors = ChatAccess(catalog), DisplayNames(accounts), CursorCodec(dependencies.secrets)
    history = HistoryReader(dependencies.durability, dependencies.history)
    idempotency = IdempotencyGuard(dependencies.request_keys, clock)
    views = ChatViews(catalog=catalog, delivery=marks, names=names, access=access)
    return [
        *auth.routes(auth.AuthResource(dependencies.otp, dependencies.sign_in)),
        *users.routes(users.UserResource(accounts, clock, dependencies.observe)),
        *sessions.routes(sessions.SessionResource(accounts, dependencies.revoker, clock)),
        *chat_list.routes(
            chat_list.ChatListResource(catalog=catalog, delivery=marks, history=history, names=names, cursors=cursors)
        ),
        *chats.routes(
            chats.ChatResource(
                catalog=catalog,
                service=memberships,
                views=views,
                names=names,
                access=access,
                idempotency=idempotency,
                clock=clock,
            )
        ),
        *members.routes(
            members.MemberResource(
                catalog=catalog,
                service=memberships,
                names=names,
                access=access,
                idempotency=idempotency,
                cursors=cursors,
            )
        ),
        *messages.routes(messages.MessageResource(history=history, names=names, access=access, cursors=cursors)),
        *find_message.routes(find_message.MessageLookupResource(history=history, names=names, access=access)),
        *delivery.routes(
            delivery.DeliveryResource(
                catalog=catalog,
                delivery=marks,
                durability=dependencies.durability,
                history=history,
                names=names,
                access=access,
                cursors=cursors,
            )
        ),
    ]


def build_app(
    dependencies: ApiDependencies,
    routes: Sequence[Route],
    *,
    rate_limits_off: bool = False,
    docs: Mapping[str, Document] | None = None,
    trusted_proxies: Sequence[str] = (),
    cors_origins: Sequence[str] = (),
) -> RestApp:
    """Serves `routes` below /api/v1 and /api; health and documentation also at the root.

    `docs` are further documents by path: media type and bytes. `trusted_proxies` are addresses or networks whose
    X-Forwarded-For is believed; `cors_origins` are the origins of web pages that may call the API, `*` for all.
    """
    clock = dependencies.clock
    pipeline = RequestPipeline(
        authenticator=dependencies.authenticator,
        rate_limiter=RateLimiter(dependencies.quotas, clock, rate_limits_off=rate_limits_off),
        session_used=SessionActivity(dependencies.accounts, clock).touch,
        clock=clock,
        observe=dependencies.observe,
        trusted_proxies=parse_networks(trusted_proxies),
        cors_origins=cors_origins,
    )
    health = HealthResource(dependencies.ready, clock)
    api = [*routes, *capability_routes(health), *health_routes(health)]
    document = openapi_document(
        [(BASE + each.path, each) for each in api] + [(each.path, each) for each in health_routes(health)]
    )
    pages = document_routes(documents(document, BASE, docs or {}))
    # "/api/v1" answers as "/api/v1/" does.
    mounted = [(prefix, each) for prefix in (BASE, ALIAS) for each in capability_routes(health)]
    mounted += [(prefix + each.path, each) for prefix in (BASE, ALIAS) for each in api]
    mounted += [(each.path, each) for each in (*health_routes(health), *pages)]
    mounted += [(ALIAS + each.path.removeprefix(BASE), each) for each in pages if each.path.startswith(BASE)]
    return RestApp(pipeline, mounted)

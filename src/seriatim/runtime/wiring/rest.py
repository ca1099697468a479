"""The REST edge put together from what it depends on. Which engines those are, `assemble` decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seriatim.api import auth, chat_list, chats, delivery, find_message, members, messages, sessions, users
from seriatim.api.access import ChatAccess
from seriatim.api.chat_views import ChatViews
from seriatim.api.core.app import RestApp, build_app
from seriatim.api.core.cursor import CursorCodec
from seriatim.api.core.docs_page import Document
from seriatim.api.core.idempotency import IdempotencyGuard
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.route import Route
from seriatim.api.display_names import DisplayNames
from seriatim.api.health import Ready
from seriatim.api.history_reader import HistoryReader
from seriatim.api.otp import Codes
from seriatim.api.sessions import SessionRevoker
from seriatim.ports.accounts import Accounts
from seriatim.ports.catalog import Catalog
from seriatim.ports.clock import Clock
from seriatim.ports.code_sender import CodeSender
from seriatim.ports.durability import Durability, History
from seriatim.ports.message_log import DeliveryState
from seriatim.ports.quotas import Quotas
from seriatim.ports.request_keys import RequestKeys
from seriatim.ports.secrets import Secrets
from seriatim.ports.tokens import Authenticator, TokenSigner
from seriatim.services.membership import MembershipService


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiDependencies:
    """All that the edge asks of others."""

    accounts: Accounts
    catalog: Catalog
    delivery: DeliveryState
    durability: Durability
    history: History
    memberships: MembershipService
    request_keys: RequestKeys
    quotas: Quotas
    secrets: Secrets
    signer: TokenSigner
    authenticator: Authenticator
    revoker: SessionRevoker
    sender: CodeSender
    new_code: Callable[[Clock], str]
    clock: Clock
    observe: ApiObserver
    ready: Ready


@dataclass(frozen=True, slots=True)
class Rest:
    """`codes` has tasks of its own, and is closed by whoever stops the server."""

    app: RestApp
    codes: Codes


def rest_app(
    dependencies: ApiDependencies,
    *,
    rate_limits_off: bool,
    reuse_leeway_s: int,
    trusted_proxies: Sequence[str],
    cors_origins: Sequence[str],
    docs: Mapping[str, Document],
) -> Rest:
    codes = Codes(
        accounts=dependencies.accounts,
        secrets=dependencies.secrets,
        sender=dependencies.sender,
        new_code=dependencies.new_code,
        clock=dependencies.clock,
        observe=dependencies.observe,
    )
    app = build_app(
        [*_people(dependencies, codes, reuse_leeway_s), *_conversations(dependencies)],
        authenticator=dependencies.authenticator,
        quotas=dependencies.quotas,
        accounts=dependencies.accounts,
        clock=dependencies.clock,
        ready=dependencies.ready,
        observe=dependencies.observe,
        rate_limits_off=rate_limits_off,
        docs=docs,
        trusted_proxies=trusted_proxies,
        cors_origins=cors_origins,
    )
    return Rest(app, codes)


def _people(dependencies: ApiDependencies, codes: Codes, reuse_leeway_s: int) -> Sequence[Route]:
    signing_in = auth.AuthResource(
        accounts=dependencies.accounts,
        secrets=dependencies.secrets,
        signer=dependencies.signer,
        authenticator=dependencies.authenticator,
        revoker=dependencies.revoker,
        clock=dependencies.clock,
        observe=dependencies.observe,
        reuse_leeway_s=reuse_leeway_s,
    )
    return [
        *auth.routes(codes, signing_in),
        *users.routes(users.UserResource(dependencies.accounts, dependencies.clock, dependencies.observe)),
        *sessions.routes(sessions.SessionResource(dependencies.accounts, dependencies.revoker, dependencies.clock)),
    ]


def _conversations(dependencies: ApiDependencies) -> Sequence[Route]:
    catalog, service, clock = dependencies.catalog, dependencies.memberships, dependencies.clock
    names, access, cursors = DisplayNames(dependencies.accounts), ChatAccess(catalog), CursorCodec(dependencies.secrets)
    history, idempotency = (
        HistoryReader(dependencies.durability, dependencies.history),
        IdempotencyGuard(dependencies.request_keys, clock),
    )
    views = ChatViews(catalog=catalog, delivery=dependencies.delivery, names=names, access=access)
    return [
        *chat_list.routes(
            chat_list.ChatListResource(
                catalog=catalog, delivery=dependencies.delivery, history=history, names=names, cursors=cursors
            )
        ),
        *chats.routes(
            chats.ChatResource(
                catalog=catalog,
                service=service,
                views=views,
                names=names,
                access=access,
                idempotency=idempotency,
                clock=clock,
            )
        ),
        *members.routes(
            members.MemberResource(
                catalog=catalog, service=service, names=names, access=access, idempotency=idempotency, cursors=cursors
            )
        ),
        *messages.routes(messages.MessageResource(history=history, names=names, access=access, cursors=cursors)),
        *find_message.routes(find_message.MessageLookupResource(history=history, names=names, access=access)),
        *delivery.routes(
            delivery.DeliveryResource(
                catalog=catalog,
                delivery=dependencies.delivery,
                durability=dependencies.durability,
                history=history,
                names=names,
                access=access,
                cursors=cursors,
            )
        ),
    ]

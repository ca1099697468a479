"""The REST edge put together from what stands behind it. Which engines those are, `assemble` decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seriatim.api import auth, chat_list, chats, delivery, find_message, members, messages, sessions, users
from seriatim.api.access import Door
from seriatim.api.chat_views import ChatViews
from seriatim.api.core.app import RestApp, build_app
from seriatim.api.core.cursor import Cursors
from seriatim.api.core.docs_page import Document
from seriatim.api.core.idempotency import Once
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.route import Route
from seriatim.api.display_names import Names
from seriatim.api.health import Ready
from seriatim.api.history_reader import Reading
from seriatim.api.otp import Codes
from seriatim.api.sessions import Revoker
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
class Behind:
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
    revoker: Revoker
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
    behind: Behind,
    *,
    lifted: bool,
    reuse_leeway_s: int,
    trusted_proxies: Sequence[str],
    cors_origins: Sequence[str],
    docs: Mapping[str, Document],
) -> Rest:
    codes = Codes(
        accounts=behind.accounts,
        secrets=behind.secrets,
        sender=behind.sender,
        new_code=behind.new_code,
        clock=behind.clock,
        observe=behind.observe,
    )
    app = build_app(
        [*_people(behind, codes, reuse_leeway_s), *_conversations(behind)],
        authenticator=behind.authenticator,
        quotas=behind.quotas,
        accounts=behind.accounts,
        clock=behind.clock,
        ready=behind.ready,
        observe=behind.observe,
        lifted=lifted,
        docs=docs,
        trusted_proxies=trusted_proxies,
        cors_origins=cors_origins,
    )
    return Rest(app, codes)


def _people(behind: Behind, codes: Codes, reuse_leeway_s: int) -> Sequence[Route]:
    signing_in = auth.Auth(
        accounts=behind.accounts,
        secrets=behind.secrets,
        signer=behind.signer,
        authenticator=behind.authenticator,
        revoker=behind.revoker,
        clock=behind.clock,
        observe=behind.observe,
        reuse_leeway_s=reuse_leeway_s,
    )
    return [
        *auth.routes(codes, signing_in),
        *users.routes(users.Users(behind.accounts, behind.clock, behind.observe)),
        *sessions.routes(sessions.SessionService(behind.accounts, behind.revoker, behind.clock)),
    ]


def _conversations(behind: Behind) -> Sequence[Route]:
    catalog, service, clock = behind.catalog, behind.memberships, behind.clock
    names, door, cursors = Names(behind.accounts), Door(catalog), Cursors(behind.secrets)
    reading, once = Reading(behind.durability, behind.history), Once(behind.request_keys, clock)
    views = ChatViews(catalog=catalog, delivery=behind.delivery, names=names, door=door)
    return [
        *chat_list.routes(
            chat_list.ChatList(catalog=catalog, delivery=behind.delivery, reading=reading, names=names, cursors=cursors)
        ),
        *chats.routes(
            chats.Chats(catalog=catalog, service=service, views=views, names=names, door=door, once=once, clock=clock)
        ),
        *members.routes(
            members.Members(catalog=catalog, service=service, names=names, door=door, once=once, cursors=cursors)
        ),
        *messages.routes(messages.Messages(reading=reading, names=names, door=door, cursors=cursors)),
        *find_message.routes(find_message.FindMessage(reading=reading, names=names, door=door)),
        *delivery.routes(
            delivery.Delivery(
                catalog=catalog,
                delivery=behind.delivery,
                durability=behind.durability,
                reading=reading,
                names=names,
                door=door,
                cursors=cursors,
            )
        ),
    ]

"""All routes of chats, members, history and delivery, put together from the ports they stand on."""

from seriatim.api import chat_list, chats, delivery, find_message, members, messages
from seriatim.api.access import ChatAccess
from seriatim.api.chat_list import ChatListResource
from seriatim.api.chat_views import ChatViews
from seriatim.api.chats import ChatResource
from seriatim.api.core.cursor import CursorCodec
from seriatim.api.core.idempotency import IdempotencyGuard
from seriatim.api.core.route import Route
from seriatim.api.delivery import DeliveryResource
from seriatim.api.display_names import DisplayNames
from seriatim.api.find_message import MessageLookupResource
from seriatim.api.history_reader import HistoryReader
from seriatim.api.members import MemberResource
from seriatim.api.messages import MessageResource
from seriatim.ports.accounts import Accounts
from seriatim.ports.catalog import Catalog
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability, History
from seriatim.ports.message_log import DeliveryState
from seriatim.services.membership import MembershipService


def chat_routes(
    *,
    catalog: Catalog,
    service: MembershipService,
    accounts: Accounts,
    state: DeliveryState,
    durability: Durability,
    history: History,
    idempotency: IdempotencyGuard,
    cursors: CursorCodec,
    clock: Clock,
) -> list[Route]:
    access, names, reader = ChatAccess(catalog), DisplayNames(accounts), HistoryReader(durability, history)
    views = ChatViews(catalog=catalog, delivery=state, names=names, access=access)
    return [
        *chat_list.routes(
            ChatListResource(catalog=catalog, delivery=state, history=reader, names=names, cursors=cursors)
        ),
        *chats.routes(
            ChatResource(
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
            MemberResource(
                catalog=catalog, service=service, names=names, access=access, idempotency=idempotency, cursors=cursors
            )
        ),
        *messages.routes(MessageResource(history=reader, names=names, access=access, cursors=cursors)),
        *find_message.routes(MessageLookupResource(history=reader, names=names, access=access)),
        *delivery.routes(
            DeliveryResource(
                catalog=catalog,
                delivery=state,
                durability=durability,
                history=reader,
                names=names,
                access=access,
                cursors=cursors,
            )
        ),
    ]

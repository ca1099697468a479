"""All routes of chats, members, history and delivery, put together from the ports they stand on."""

from seriatim.api import chat_list, chats, delivery, find_message, members, messages
from seriatim.api.access import Door
from seriatim.api.chat_list import ChatList
from seriatim.api.chat_views import ChatViews
from seriatim.api.chats import Chats
from seriatim.api.core.cursor import Cursors
from seriatim.api.core.idempotency import Once
from seriatim.api.core.route import Route
from seriatim.api.delivery import Delivery
from seriatim.api.display_names import Names
from seriatim.api.find_message import FindMessage
from seriatim.api.history_reader import Reading
from seriatim.api.members import Members
from seriatim.api.messages import Messages
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
    once: Once,
    cursors: Cursors,
    clock: Clock,
) -> list[Route]:
    door, names, reading = Door(catalog), Names(accounts), Reading(durability, history)
    views = ChatViews(catalog=catalog, delivery=state, names=names, door=door)
    return [
        *chat_list.routes(ChatList(catalog=catalog, delivery=state, reading=reading, names=names, cursors=cursors)),
        *chats.routes(
            Chats(catalog=catalog, service=service, views=views, names=names, door=door, once=once, clock=clock)
        ),
        *members.routes(Members(catalog=catalog, service=service, names=names, door=door, once=once, cursors=cursors)),
        *messages.routes(Messages(reading=reading, names=names, door=door, cursors=cursors)),
        *find_message.routes(FindMessage(reading=reading, names=names, door=door)),
        *delivery.routes(
            Delivery(
                catalog=catalog,
                delivery=state,
                durability=durability,
                reading=reading,
                names=names,
                door=door,
                cursors=cursors,
            )
        ),
    ]

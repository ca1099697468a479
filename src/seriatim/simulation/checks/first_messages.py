"""How long a connected device may wait for messages of a new chat: until the next probe of its gateway."""

from collections.abc import Mapping, Sequence

from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.clients.device import Device
from seriatim.simulation.clients.socket import SimulatedSocket


def check_first_messages(
    history: WorldHistory, published: Mapping[str, Sequence[int]], sockets: Sequence[tuple[Device, SimulatedSocket]]
) -> None:
    """What was published in new chats is held by every device of a member that has been connected since.

    Left out are users whose membership changed, and messages that the store itself has lost.
    """
    for device, socket in sockets:
        if device.socket is not socket or not device.process.alive:
            continue
        for chat_id, sequences in published.items():
            if len(history.roles.get((chat_id, device.user_id), ())) != 1:
                continue
            lost = history.lost.get(chat_id, {})
            missing = [each for each in sequences if (chat_id, each) not in device.store.stored_at and each not in lost]
            if missing:
                history.violate(
                    "first_message_bound", f"{device.name} is connected and has not seen {missing} of {chat_id}"
                )

"""What the directory or the push service does not do for a gateway is counted, each by its name."""

from collections.abc import Sequence

from seriatim.connection.observer import GatewayObserver
from seriatim.connection.registrations import Registrations, is_older
from seriatim.domain.errors import OutcomeUnknown, SeriatimError
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPush
from seriatim.ports.directory import Registration
from tests.support.rest import FailingWire


class Failures(GatewayObserver):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def directory_failed(self, operation: str, error: SeriatimError) -> None:
        self.seen.append(operation)


def registration(connection_id: str = "conn_1", connected_at: str = "2026-01-30T14:30:00.000Z") -> Registration:
    return Registration(
        connection_id=connection_id,
        user_id="user_1",
        device_id="device_1",
        session_id="sess_1",
        gateway_id="gw_1",
        connected_at=connected_at,
    )


async def test_every_failure_of_the_directory_is_counted_by_its_operation() -> None:
    wire, failures = FailingWire(), Failures()
    directory = InProcessDirectory(InProcessRegistry(), wire, lambda: 0)
    registrations = Registrations(directory, InProcessPush(InProcessChannels(), wire), failures)
    await registrations.add(registration())
    wire.broken["*"] = OutcomeUnknown("away")
    await registrations.renew()
    twins: Sequence[Registration] = await registrations.same_device(registration())
    assert twins == ()
    await registrations.close_elsewhere([registration("conn_0")])
    await registrations.remove(registration())
    assert failures.seen == ["register", "connections", "publish", "unregister"]


def test_of_two_connections_the_one_that_came_first_is_older_and_of_the_same_moment_the_lower_id() -> None:
    assert is_older(registration(), registration(connected_at="2026-01-30T14:30:00.001Z"))
    assert is_older(registration("conn_1"), registration("conn_2"))
    assert not is_older(registration(), registration())

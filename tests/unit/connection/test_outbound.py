"""S26 and H17 in the small: bounds, marks and order of the outbound buffer."""

from seriatim.connection.session.outbound import OutboundBuffer, Pressure

ALL = 1 << 30


def filled(count: int) -> OutboundBuffer:
    outbound = OutboundBuffer()
    for number in range(count):
        outbound.push(b"p%d" % number, "chat_a", number)
    return outbound


def taken(outbound: OutboundBuffer, bytes_max: int = ALL) -> list[bytes]:
    chunk = outbound.take(bytes_max)
    return [] if chunk is None else chunk.frames


def test_h17_the_buffer_never_exceeds_1000_pushes() -> None:
    outbound = filled(1000)
    assert not outbound.push(b"one more", "chat_a", 1000)
    assert outbound.waiting == 1000


def test_there_is_room_below_the_warning_mark_and_for_nothing_once_pushes_are_refused() -> None:
    outbound = filled(700)
    assert outbound.has_room(99)
    assert not outbound.has_room(100)
    assert not filled(1000).has_room(0)
    outbound.refuse_pushes()
    assert not outbound.has_room(1)


def test_h17_a_full_buffer_refuses_pushes_until_it_is_below_80_percent() -> None:
    outbound = filled(1000)
    while outbound.waiting > 800:
        outbound.take(1)
    assert outbound.assess(0.0) is not Pressure.RECOVERED
    assert outbound.lagging
    outbound.take(1)
    assert outbound.assess(0.0) is Pressure.RECOVERED
    assert outbound.push(b"x", "chat_a", 0)


def test_s26_the_warning_comes_above_80_percent_and_once() -> None:
    assert filled(800).assess(0.0) is None
    outbound = filled(801)
    assert outbound.assess(0.0) is Pressure.WARNED
    assert outbound.assess(0.0) is None


def test_s26_a_client_is_critical_above_95_percent_and_has_5_seconds() -> None:
    assert filled(950).assess(7.0) is Pressure.WARNED
    outbound = filled(951)
    assert outbound.assess(7.0) is Pressure.CRITICAL
    assert outbound.close_at == 12.0


def test_s26_there_is_one_critical_signal_per_episode_and_the_grace_is_not_extended() -> None:
    outbound = filled(960)
    outbound.assess(7.0)
    assert outbound.assess(9.0) is None
    assert outbound.close_at == 12.0


def test_s26_an_episode_that_ended_can_begin_again() -> None:
    outbound = filled(960)
    outbound.assess(7.0)
    taken(outbound)
    assert outbound.assess(8.0) is Pressure.RECOVERED
    assert outbound.close_at is None
    for number in range(960):
        outbound.push(b"p", "chat_a", number)
    assert outbound.assess(9.0) is Pressure.CRITICAL
    assert outbound.close_at == 14.0


def test_answers_overtake_batches_and_batches_overtake_pushes() -> None:
    outbound = filled(1)
    outbound.batch(b"batch")
    outbound.answer(b"answer", request=True)
    assert taken(outbound) == [b"answer", b"batch", b"p0"]


def test_the_greeting_comes_before_everything() -> None:
    outbound = filled(1)
    outbound.answer(b"answer", request=False)
    outbound.greet(b"greeting")
    assert taken(outbound) == [b"greeting", b"answer", b"p0"]


def test_a_chunk_is_bounded_and_loses_nothing() -> None:
    outbound = filled(10)
    chunks = []
    while frames := taken(outbound, bytes_max=5):
        chunks.append(frames)
    assert max(map(len, chunks)) <= 3
    assert [frame for frames in chunks for frame in frames] == [b"p%d" % number for number in range(10)]


def test_no_push_overtakes_a_batch_that_had_to_wait_for_the_next_chunk() -> None:
    outbound = filled(1)
    outbound.batch(b"first")
    outbound.batch(b"second")
    assert taken(outbound, bytes_max=3) == [b"first"]
    assert taken(outbound) == [b"second", b"p0"]


def test_a_chunk_counts_the_answers_to_requests_and_the_batches_it_carries() -> None:
    outbound = OutboundBuffer()
    outbound.answer(b"ack", request=True)
    outbound.answer(b"warning", request=False)
    outbound.batch(b"batch")
    chunk = outbound.take(ALL)
    assert chunk is not None
    assert (chunk.answers, chunk.batches) == (1, 1)


def test_the_lane_of_answers_is_bounded_and_says_so() -> None:
    outbound = OutboundBuffer()
    assert all(outbound.answer(b"a", request=True) for _ in range(200))
    assert not outbound.answer(b"a", request=True)


def test_hints_name_per_chat_the_floor_of_the_first_push_that_did_not_leave() -> None:
    outbound = OutboundBuffer()
    for chat_id, floor in (("chat_a", 4), ("chat_b", 9), ("chat_a", 5)):
        outbound.push(b"p", chat_id, floor)
    outbound.take(1)
    assert outbound.sync_hints() == {"chat_b": 9, "chat_a": 5}
    assert outbound.floor("chat_a") == 5
    assert outbound.floor("chat_c") is None


def test_after_the_closing_was_announced_no_push_is_taken_and_recovery_changes_nothing() -> None:
    outbound = filled(3)
    outbound.refuse_pushes()
    assert outbound.assess(0.0) is None
    assert not outbound.push(b"p", "chat_a", 0)
    assert taken(outbound) == []

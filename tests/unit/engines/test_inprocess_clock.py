"""`SystemClock` takes random bytes in advance, and uses each once."""

from seriatim.engines.inprocess.clock import SystemClock


def test_no_chance_is_given_twice() -> None:
    clock = SystemClock()
    given = [clock.random_bits(80) for _ in range(5000)]
    assert len(set(given)) == len(given)
    assert max(given) < 1 << 80
    assert max(given).bit_length() > 75


def test_chance_has_as_many_bits_as_were_asked_for() -> None:
    clock = SystemClock()
    for bits in (1, 7, 8, 53, 124, 256):
        given = [clock.random_bits(bits) for _ in range(200)]
        assert min(given) >= 0
        assert max(given).bit_length() == bits
    assert all(0 <= clock.random() < 1 for _ in range(1000))


def test_two_clocks_share_no_chance() -> None:
    one, other = SystemClock(), SystemClock()
    assert one.random_bits(80) != other.random_bits(80)

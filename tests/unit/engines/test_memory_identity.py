"""The memory store does not grow with what has ended."""

from seriatim.domain import limits
from seriatim.simulation.stores.account_tables import ExpiringTable
from tests.contract.account_data import code, issue
from tests.contract.store_data import NOW_MS
from tests.contract.store_engines import MemoryEngine


def test_rows_that_ended_are_never_more_than_those_that_live() -> None:
    shelf: ExpiringTable[int, int] = ExpiringTable(lambda ends_at_ms: ends_at_ms)
    for now_ms in range(1000):
        shelf.add(now_ms, now_ms + 10, now_ms)
        living = [each for each in shelf if each > now_ms]
        assert len(living) == min(now_ms + 1, 10)
        assert len(shelf) <= 2 * len(living)


def test_one_long_lived_row_keeps_no_others_alive() -> None:
    shelf: ExpiringTable[str, int] = ExpiringTable(lambda ends_at_ms: ends_at_ms)
    shelf.add("long", 10**9, 0)
    for now_ms in range(1000):
        shelf.add(str(now_ms), now_ms + 1, now_ms)
    assert len(shelf) <= 4
    assert shelf.get("long") == 10**9


def test_a_row_in_the_place_of_an_ended_one_is_kept() -> None:
    shelf: ExpiringTable[str, int] = ExpiringTable(lambda ends_at_ms: ends_at_ms)
    shelf.add("a", 5, 0)
    shelf.add("a", 50, 10)
    assert shelf.get("a") == 50


async def test_codes_of_many_phones_do_not_pile_up() -> None:
    store = MemoryEngine()
    kept_ms = 1000 * (limits.CODE_LIFETIME_S + limits.CODE_KEPT_S)
    for number in range(200):
        now_ms = NOW_MS + number * kept_ms
        await issue(store, code(created_at_ms=now_ms, of=f"{number:064}"), now_ms=now_ms)
    assert len(store.store.accounts.codes) <= 3

"""Pages of a list that is sorted in memory: cut where the last page ended, both ways.

A cursor names the item at the edge, not a position, so that items which come and go move no other item.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from seriatim.api.core.route import Pagination

T = TypeVar("T")
K = TypeVar("K", str, tuple[int, str])


def page_of(
    items: Sequence[T],
    limit: int,
    *,
    key: Callable[[T], K],
    edge: K | None,
    back: bool,
    cursor: Callable[[T, bool], str],
) -> tuple[Sequence[T], Pagination]:
    """At most `limit` of the sorted items: above the edge, or below it when going `back`; from the start without one.

    `cursor` makes the cursor that goes on from an item, forward or back. There is none where there is nothing.
    """
    if edge is None:
        start, end = 0, limit
    elif back:
        end = bisect_left(items, edge, key=key)
        start = max(0, end - limit)
    else:
        start = bisect_right(items, edge, key=key)
        end = start + limit
    page = items[start:end]
    more = bool(page) and end < len(items)
    return page, Pagination(
        has_more=more,
        next_cursor=cursor(page[-1], False) if more else None,
        prev_cursor=cursor(page[0], True) if page and start > 0 else None,
    )

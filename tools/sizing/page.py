"""The figures of docs/sizing.md and its picture. The words between the figures are written by hand."""

import re
from collections.abc import Callable, Mapping, Sequence

from seriatim.domain import limits
from tools.sizing import model
from tools.sizing.model import Cost, Load, Prices

PRICES = Prices()
LOADS: Mapping[str, Load] = {
    "one message, then a pause": Load(quiet=True),
    "one writer, one after another": Load(),
    "24 writers, batches of 24": Load(batch=24, senders=24),
    "one fast writer, batches of 24": Load(batch=24, senders=1),
}
CHATS_OF_A_USER = 50
CONTENTS_BYTES = (50, 200, 700, 2000, 4096)
BATCHES = (1, 2, 4, 8, 16, 24, 32)


def with_figures(words: str) -> str:
    """The page, with every table between its two marks written anew. Raises `KeyError` for a mark without a table."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[4]}", words)


_MARKED = re.compile(r"(<!-- figures: (\w+) -->)\n(.*?)(<!-- end -->)", re.DOTALL)


# --- tables -----------------------------------------------------------------------------------------------------------


def prices_table() -> str:
    rows = [
        ("1 million write units, on demand", f"${PRICES.write_units_million}"),
        ("1 million read units, on demand", f"${PRICES.read_units_million}"),
        ("1 GB in DynamoDB for a month", f"${PRICES.stored_gb_month}"),
        ("1 GB on brokers' disks for a month", f"${PRICES.log_gb_month:.2f}"),
    ]
    return _table((f"{PRICES.region}, {PRICES.as_of}", "price"), rows)


def side_by_side() -> str:
    head = ("how people write", "", "calls", "read units", "write units", "per million messages")
    rows = [("any", "ADR-004", *_figures(model.adr_004(Load())))]
    rows += [(name, "Seriatim", *_figures(model.seriatim(load))) for name, load in LOADS.items()]
    return _table(head, rows)


def by_content() -> str:
    head = (
        "content",
        "row in `messages`",
        "write units: ADR-004",
        "Seriatim, 1 at a time",
        "Seriatim, 24 writers",
        "event",
    )
    rows = []
    for content in CONTENTS_BYTES:
        alone, many = Load(content_bytes=content), Load(content_bytes=content, batch=24, senders=24)
        costs = [model.adr_004(alone), model.seriatim(alone), model.seriatim(many)]
        size = model.row_sizes(alone)["messages"]
        rows.append((f"{content} B", f"{size} B", *(_number(each.writes) for each in costs), _bytes(alone)))
    return _table(head, rows)


def by_role() -> str:
    load = Load()
    many = LOADS["24 writers, batches of 24"]
    refill, ack, sweeps = model.refill(load), model.acknowledgement(), model.sweeps_per_month()
    head = ("role", "what for", "calls", "read units", "write units", "how often")
    rows = [
        ("gateway", "anything", "0", "0", "0", "it has no access to the store"),
        ("ingest", "a message, 1 at a time", *_units(model.seriatim(load)), "each message"),
        ("ingest", "a message, 24 writers", *_units(model.seriatim(many)), "each message"),
        ("ingest", "an acknowledgement", *_units(ack), f"at most every {limits.CLIENT_ACK_EVERY_S:.0f} s per device"),
        ("ingest", "the head of a chat", "0.01", "1", "0", _probes()),
        (
            "ingest",
            f"the new chats of a user with {CHATS_OF_A_USER}",
            *_units(model.new_chats(CHATS_OF_A_USER)),
            _lists(),
        ),
        ("ingest", "looking for chats left behind", *_units(sweeps), "per process and month, whatever is sent"),
        ("fanout", f"the members of a chat of {load.members}", *_units(refill), _refills()),
        ("api", "a message", "0", "0", "0", "REST sends none; history and lists are reads by ingest and by key"),
    ]
    return _table(head, rows)


def beside_the_store() -> str:
    load = Load()
    event, envelope = model.event_bytes(load), model.envelope_bytes(load)
    week_gb = 1e6 * event * 3 / 1e9
    commands = model.redis_commands(load)
    counts = ", ".join(f"{count} {name}" for name, count in commands.items())
    rows = [
        ("Kafka: a record, before compression", f"{event} B"),
        ("Kafka: a million messages on three brokers, kept for a week", f"{week_gb:.1f} GB"),
        ("Redis: commands of fanout for a message", f"{sum(commands.values())} ({counts})"),
        ("Redis: an envelope to one gateway", f"{envelope} B"),
        ("DynamoDB: a million messages, for ever", f"{model.stored_bytes(load) / 1000:.2f} GB"),
        ("DynamoDB: their keys, for a week", f"{model.key_bytes(load) / 1000:.2f} GB"),
    ]
    people = f"{load.members} members, {load.online} of them online at {load.gateways} gateways"
    return _table((f"{load.content_bytes} B of text, {people}", ""), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "prices": prices_table,
    "side_by_side": side_by_side,
    "by_content": by_content,
    "by_role": by_role,
    "beside_the_store": beside_the_store,
}


def _figures(cost: Cost) -> tuple[str, ...]:
    return (*_units(cost), f"${cost.dollars_per_million(PRICES):.2f}")


def _units(cost: Cost) -> tuple[str, ...]:
    return _number(cost.calls), _number(cost.reads), _number(cost.writes)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}".rstrip("0").rstrip(".")


def _bytes(load: Load) -> str:
    return f"{model.event_bytes(load)} B"


def _lists() -> str:
    first, last = limits.NEW_CHATS_EVERY_S, limits.NEW_CHATS_EVERY_S + limits.NEW_CHATS_SPREAD_S
    return f"every {first:.0f} to {last:.0f} s per gateway and user who is connected there"


def _probes() -> str:
    first, last = limits.PROBE_INTERVAL_S, limits.PROBE_INTERVAL_MAX_S
    return f"every {first:.0f} to {last:.0f} s per gateway and chat that is open there"


def _refills() -> str:
    return f"every {limits.MEMBER_CACHE_TTL_S:.0f} s per chat that is written to, and after changes of members"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


# --- picture ----------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 320, 56, 36, 264
_SERIES: Sequence[tuple[str, str, Callable[[int], Cost]]] = (
    ("ADR-004", "#888888", lambda batch: model.adr_004(Load())),
    (
        "Seriatim, as many writers as messages",
        "#b4532a",
        lambda batch: model.seriatim(Load(batch=batch, senders=batch)),
    ),
    ("Seriatim, one writer", "#2a6fb4", lambda batch: model.seriatim(Load(batch=batch, senders=1))),
)


def picture() -> str:
    """Dollars for a million messages by the size of batches, as lines."""
    dollars = {name: [cost(batch).dollars_per_million(PRICES) for batch in BATCHES] for name, _, cost in _SERIES}
    top = max(value for line in dollars.values() for value in line) * 1.1
    title = f"DynamoDB, $ per million messages of {Load().content_bytes} B, by messages per batch"
    look = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {look}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20">{title}</text>',
    ]
    for step in range(int(top) + 1):
        y = _y(step, top)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - 20}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{step}</text>')
    for index, batch in enumerate(BATCHES):
        parts.append(f'<text x="{_x(index):.1f}" y="{_BOTTOM + 18}" text-anchor="middle">{batch}</text>')
    for number, (name, colour, _) in enumerate(_SERIES):
        points = " ".join(f"{_x(index):.1f},{_y(value, top):.1f}" for index, value in enumerate(dollars[name]))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x = _LEFT + number * 150 + (70 if number == 2 else 0)
        parts.append(f'<rect x="{x}" y="{_HEIGHT - 24}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{_HEIGHT - 14}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(index: int) -> float:
    return _LEFT + 24 + index * (_WIDTH - _LEFT - 64) / (len(BATCHES) - 1)


def _y(value: float, top: float) -> float:
    return _BOTTOM - value / top * (_BOTTOM - _TOP)

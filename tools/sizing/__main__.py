"""`python -m tools.sizing`: what a message of yours would cost. docs/sizing.md explains the figures."""

import argparse

from tools.sizing import model
from tools.sizing.model import Cost, Load, Prices


def main() -> None:
    standard, list_prices = Load(), Prices()
    parser = argparse.ArgumentParser(prog="python -m tools.sizing", description=__doc__)
    parser.add_argument("--content-bytes", type=int, default=standard.content_bytes)
    parser.add_argument("--batch", type=int, default=standard.batch, help="messages of a chat committed together")
    parser.add_argument("--senders", type=int, default=standard.senders, help="people among them")
    parser.add_argument("--quiet", action="store_true", help="the chat falls idle after each batch")
    parser.add_argument("--write-price", type=float, default=list_prices.write_units_million)
    parser.add_argument("--read-price", type=float, default=list_prices.read_units_million)
    asked = parser.parse_args()
    load = Load(batch=asked.batch, senders=asked.senders, quiet=asked.quiet, content_bytes=asked.content_bytes)
    prices = Prices(write_units_million=asked.write_price, read_units_million=asked.read_price)
    print(_line("ADR-004", model.adr_004(load), prices))
    print(_line("Seriatim", model.seriatim(load), prices))
    print(f"an event in Kafka: {model.event_bytes(load)} B; a row of messages: {model.row_sizes(load)['messages']} B")


def _line(name: str, cost: Cost, prices: Prices) -> str:
    dollars = cost.dollars_per_million(prices)
    units = f"{cost.calls:.2f} calls, {cost.reads:.2f} read units, {cost.writes:.2f} write units per message"
    return f"{name:8} {units}, ${dollars:.2f} per million"


if __name__ == "__main__":
    main()

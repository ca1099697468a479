"""`seriatim topics`: the topics of a deployment on Kafka, made once and compared with what they should be."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from seriatim.cli.options import exit_with_error
from seriatim.cli.printing import console, print_json, print_rows, quiet_pipe
from seriatim.domain.errors import SeriatimError
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.retries import RetryingTopicControl
from seriatim.operations.topics import PARTITIONS, PROFILES, TopicDifference
from seriatim.operations.topics import create as create_topics
from seriatim.operations.topics import verify as verify_topics
from seriatim.ports.topics import TopicControl

try:
    from seriatim.engines.kafka.cluster import Cluster
    from seriatim.engines.kafka.topic_control import KafkaTopicControl
except ModuleNotFoundError as missing:
    raise SystemExit("Kafka needs one more package: pip install 'seriatim[kafka]'") from missing

DIFFERENT = 1  # exit code

_EPILOG = "Exit code: 0 every topic is as it should be, 1 one is not, 2 Kafka could not be asked."

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def topics() -> None:
    """Make and verify the four topics of a deployment on Kafka."""


def _where(command: Command) -> Command:
    """The options that say which topics are meant, and what for."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead."),
        click.option(
            "--profile",
            type=click.Choice(list(PROFILES)),
            default="cluster",
            show_default=True,
            help="cluster: three copies, two of them in sync. single: one broker, one copy.",
        ),
        click.option(
            "--url",
            required=True,
            metavar="URL",
            help="kafka://host:9092,host:9092, with ?prefix=TEXT if the names of the topics begin with one.",
        ),
    ):
        command = option(command)
    return command


@topics.command(epilog=_EPILOG)
@_where
def create(url: str, profile: str, as_json: bool) -> None:
    """Make the topics that are missing, and mend the settings of the others.

    May be repeated at any time, also while servers run. The number of partitions is never changed. A lost connection
    is tried again a few times.
    """

    async def work(control: TopicControl, prefix: str) -> tuple[list[str], list[TopicDifference]]:
        report: Callable[[str], None] = lambda line: None if as_json else click.echo(line, err=True)  # noqa: E731
        retrying = RetryingTopicControl(control, SystemClock(), report)
        made = await create_topics(retrying, PROFILES[profile], prefix=prefix, report=report)
        return list(made), list(await verify_topics(retrying, PROFILES[profile], prefix=prefix))

    made, differences = _run(work, url)
    _finish(differences, {"made": made}, f"{len(made)} topics made", as_json=as_json)


@topics.command(epilog=_EPILOG)
@_where
def verify(url: str, profile: str, as_json: bool) -> None:
    """Compare the topics with what they should be. Changes nothing."""

    async def work(control: TopicControl, prefix: str) -> list[TopicDifference]:
        return list(await verify_topics(control, PROFILES[profile], prefix=prefix))

    _finish(_run(work, url), {}, f"{len(PARTITIONS)} topics compared", as_json=as_json)


def _run(work: Callable[[TopicControl, str], Awaitable[T]], url: str) -> T:
    async def run(cluster: Cluster) -> T:
        return await work(KafkaTopicControl(cluster), cluster.prefix)

    try:
        return asyncio.run(run(Cluster.parse(url)))
    except ValueError as error:
        exit_with_error(error)
    except SeriatimError as error:
        exit_with_error(error.log_reason)


def _finish(differences: list[TopicDifference], answer: dict[str, object], done: str, *, as_json: bool) -> None:
    with quiet_pipe():
        if as_json:
            print_json({**answer, "differences": differences})
        else:
            if differences:
                print_rows(
                    console(),
                    [
                        {
                            "topic": each.topic,
                            "what": each.what,
                            "expected": each.expected,
                            "found": each.found,
                            "advice": each.advice,
                        }
                        for each in differences
                    ],
                )
            verdict = f"{len(differences)} differences" if differences else "all as they should be"
            click.echo(f"{done}: {verdict}.")
    sys.exit(DIFFERENT if differences else 0)

"""How a process reaches DynamoDB: where it is, and with which credentials, which are renewed before they expire.

Region and credentials are found where every AWS tool finds them (environment, profile, container, machine).
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import msgspec

from seriatim.domain import limits
from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.dynamodb.transport.signing import AwsCredentials
from seriatim.ports.clock import Clock

if TYPE_CHECKING:
    from botocore.session import Session

_log = logging.getLogger(__name__)


class StoreUnreachable(Exception):
    """Why there is no way to DynamoDB, and what to do about it."""


class AwsConfiguration(msgspec.Struct, frozen=True):
    """What the usual places say. Either may be missing."""

    region: str | None
    credentials: AwsCredentials | None


class DynamoDbUrl(msgspec.Struct, frozen=True, kw_only=True):
    """`dynamodb://?region=R&prefix=P&endpoint=URL`, all of them optional."""

    endpoint: str | None = None
    region: str | None = None
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> "DynamoDbUrl":
        """Raises `ValueError`."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        unknown = [name for name in options if name not in cls.__struct_fields__]
        if parts.netloc or parts.path or unknown:
            raise ValueError(
                "store looks like dynamodb://?region=eu-west-1&prefix=chat_&endpoint=http://localhost:8000"
            )
        return msgspec.convert(options, cls)


_LOCAL = AwsConfiguration("us-east-1", AwsCredentials(key_id="local", secret="local"))


@asynccontextmanager
async def dynamodb(url: str | None, region: str | None, clock: Clock) -> AsyncIterator[DynamoClient]:
    """A client for as long as the block lasts. Without `url` it is Amazon's own service of the region.

    A plain `http` address is a local engine, which takes any credentials: none are searched.
    """
    found = _LOCAL if url is not None and url.startswith("http://") else await asyncio.to_thread(find_aws_configuration)
    region = region or found.region
    if region is None:
        raise StoreUnreachable("no AWS region is set; give --region or set AWS_REGION")
    if found.credentials is None:
        raise StoreUnreachable("no AWS credentials were found; see `aws configure`, or give this machine a role")
    keeper = CredentialsRefresher(found.credentials)
    address = url if url else await asyncio.to_thread(aws_endpoint, region)
    try:
        client = DynamoClient(address, region=region, credentials=keeper.now, clock=clock)
    except ValueError as error:
        raise StoreUnreachable(str(error)) from None
    renewing = asyncio.create_task(keeper.run(find_aws_configuration if found is not _LOCAL else lambda: _LOCAL))
    try:
        yield client
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing
        await client.close()


class CredentialsRefresher:
    """The credentials of this moment. They are read again in a thread, since that may go over the network."""

    def __init__(self, credentials: AwsCredentials) -> None:
        self._now = credentials

    def now(self) -> AwsCredentials:
        return self._now

    async def run(self, find_aws_configuration: Callable[[], AwsConfiguration]) -> None:
        while True:
            await asyncio.sleep(limits.CREDENTIALS_EVERY_S)
            try:
                self._now = (await asyncio.to_thread(find_aws_configuration)).credentials or self._now
            except Exception:
                _log.exception("the credentials for DynamoDB could not be renewed; trying again")


def find_aws_configuration() -> AwsConfiguration:
    """May block. The library keeps what it found, and renews it a quarter of an hour before its end."""
    session = _session()
    credentials = session.get_credentials()
    frozen = None if credentials is None else credentials.get_frozen_credentials()
    return AwsConfiguration(
        region=session.get_config_variable("region"),
        credentials=None
        if frozen is None
        else AwsCredentials(key_id=frozen.access_key, secret=frozen.secret_key, session_token=frozen.token or None),
    )


def aws_endpoint(region: str) -> str:
    """Of the service itself. May block. Each partition (China, GovCloud and others) has a domain of its own, which the
    library knows, also for regions that are newer than the library. Raises `StoreUnreachable`.
    """
    session = _session()
    from botocore.exceptions import UnknownRegionError

    try:
        partition = session.get_partition_for_region(region)
    except UnknownRegionError:
        raise StoreUnreachable(
            f"no AWS partition is known that has a region {region!r}; correct it, or say where its DynamoDB is: "
            "--url for tools, endpoint= in `store` for servers"
        ) from None
    domains = {each["partition"]: each["dnsSuffix"] for each in session.get_data("endpoints")["partitions"]}
    return f"https://dynamodb.{region}.{domains[partition]}"


@functools.cache
def _session() -> "Session":
    try:
        from botocore.session import get_session
    except ModuleNotFoundError:
        raise StoreUnreachable("DynamoDB needs one more package: pip install 'seriatim[dynamodb]'") from None
    return get_session()

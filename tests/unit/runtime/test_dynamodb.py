"""How a process finds its way to DynamoDB, and credentials that change while it runs."""

import asyncio
from collections.abc import Iterator

import pytest

from seriatim.domain import limits
from seriatim.engines.dynamodb.transport.signing import AwsCredentials
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.runtime.wiring import dynamodb as module
from seriatim.runtime.wiring.dynamodb import (
    AwsConfiguration,
    CredentialsRefresher,
    StoreUnreachable,
    dynamodb,
    find_aws_configuration,
)

NOWHERE = "https://127.0.0.1:1"


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Nothing of the machine that runs the tests is found, and no network is asked."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    module._session.cache_clear()
    yield monkeypatch
    module._session.cache_clear()


def test_the_environment_is_one_of_the_usual_places(places: pytest.MonkeyPatch) -> None:
    places.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    places.setenv("AWS_ACCESS_KEY_ID", "key")
    places.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    places.setenv("AWS_SESSION_TOKEN", "token")
    assert find_aws_configuration() == AwsConfiguration(
        "eu-central-1", AwsCredentials(key_id="key", secret="secret", session_token="token")
    )


async def test_without_a_region_or_credentials_it_is_said_what_to_do(places: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnreachable, match="AWS_REGION"):
        async with dynamodb(NOWHERE, None, SystemClock()):
            pass
    with pytest.raises(StoreUnreachable, match="credentials"):
        async with dynamodb(None, "eu-central-1", SystemClock()):
            pass


async def test_an_engine_of_our_own_needs_neither(places: pytest.MonkeyPatch) -> None:
    def never() -> AwsConfiguration:
        raise AssertionError("nothing is to be looked for")

    places.setattr(module, "find_aws_configuration", never)
    async with dynamodb("http://127.0.0.1:1", None, SystemClock()) as client:
        assert client.calls == {}


async def test_credentials_are_renewed_and_a_failure_to_renew_keeps_the_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CREDENTIALS_EVERY_S", 0.001)
    old, new = (AwsCredentials(key_id=each, secret=each) for each in ("old", "new"))
    answers: list[AwsConfiguration | Exception] = [
        OSError("no network"),
        AwsConfiguration(None, None),
        AwsConfiguration(None, new),
    ]
    keeper, seen = CredentialsRefresher(old), list[AwsCredentials]()
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    def find() -> AwsConfiguration:
        seen.append(keeper.now())
        if not answers:
            loop.call_soon_threadsafe(enough.set)
            return AwsConfiguration(None, new)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    keeping = asyncio.create_task(keeper.run(find))
    async with asyncio.timeout(10):
        await enough.wait()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert seen[:4] == [old, old, old, new]


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "dynamodb.eu-west-1.amazonaws.com"),
        ("cn-north-1", "dynamodb.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "dynamodb.us-gov-west-1.amazonaws.com"),
        ("us-iso-east-1", "dynamodb.us-iso-east-1.c2s.ic.gov"),
        ("eu-west-99", "dynamodb.eu-west-99.amazonaws.com"),  # newer than the library
    ],
)
async def test_f3_a_region_is_asked_under_the_domain_of_its_partition(
    places: pytest.MonkeyPatch, region: str, host: str
) -> None:
    places.setenv("AWS_ACCESS_KEY_ID", "key")
    places.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with dynamodb(None, region, SystemClock()) as client:
        assert client.host == host


async def test_f3_a_region_of_no_known_partition_needs_an_address(places: pytest.MonkeyPatch) -> None:
    places.setenv("AWS_ACCESS_KEY_ID", "key")
    places.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(StoreUnreachable, match=r"moon-base-1.*--url.*endpoint"):
        async with dynamodb(None, "moon-base-1", SystemClock()):
            pass
    async with dynamodb("https://dynamodb.moon-base-1.example", "moon-base-1", SystemClock()) as client:
        assert client.host == "dynamodb.moon-base-1.example"

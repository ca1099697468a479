"""Our signatures are those that the vendor's own library makes, and secrets are not shown."""

import datetime

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as VendorsCredentials
from hypothesis import given
from hypothesis import strategies as st

from seriatim.engines.dynamodb.transport.signing import AwsCredentials, Signer

HOST, REGION = "dynamodb.eu-central-1.amazonaws.com", "eu-central-1"
NOON_MS = 1_769_774_400_000
DAY_MS = 86_400_000

texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


@given(
    key_id=texts,
    secret=texts,
    token=st.none() | texts,
    operation=st.sampled_from(["GetItem", "TransactWriteItems"]),
    body=st.binary(max_size=200),
    now_ms=st.integers(0, 4_000_000_000_000),
)
def test_a_request_is_signed_as_the_vendor_signs_it(
    key_id: str, secret: str, token: str | None, operation: str, body: bytes, now_ms: int
) -> None:
    credentials = AwsCredentials(key_id=key_id, secret=secret, session_token=token)
    head = Signer(host=HOST, region=REGION).head(credentials, operation, body, now_ms)
    assert _header(head, "Authorization") == _vendors_signature(credentials, operation, body, now_ms)
    assert _header(head, "Content-Length") == str(len(body))
    assert _header(head, "X-Amz-Security-Token") == token
    assert head.endswith(b"\r\n\r\n")


def test_the_signing_key_follows_the_day_and_the_secret() -> None:
    signer = Signer(host=HOST, region=REGION)
    for credentials, now_ms in (
        (AwsCredentials(key_id="a", secret="one"), NOON_MS),
        (AwsCredentials(key_id="a", secret="one"), NOON_MS + DAY_MS),
        (AwsCredentials(key_id="b", secret="two"), NOON_MS + DAY_MS),
        (AwsCredentials(key_id="a", secret="one"), NOON_MS),
    ):
        head = signer.head(credentials, "GetItem", b"{}", now_ms)
        assert _header(head, "Authorization") == _vendors_signature(credentials, "GetItem", b"{}", now_ms)


def test_the_signing_key_is_derived_once_a_day() -> None:
    signer = Signer(host=HOST, region=REGION)
    credentials = AwsCredentials(key_id="a", secret="one")
    derived = list[bytes]()
    for hour in range(11):
        signer.head(credentials, "GetItem", b"{}", NOON_MS + hour * 3_600_000)
        derived.append(signer._signing_key("one", "20260130"))
    assert all(key is derived[0] for key in derived)


def test_credentials_do_not_show_their_secrets() -> None:
    credentials = AwsCredentials(key_id="AKIDEXAMPLE", secret="s3cret", session_token="t0ken")
    for shown in (repr(credentials), str(credentials), f"{credentials}"):
        assert "s3cret" not in shown
        assert "t0ken" not in shown
        assert "AKIDEXAMPLE" not in shown


def _vendors_signature(credentials: AwsCredentials, operation: str, body: bytes, now_ms: int) -> str:
    now = datetime.datetime.fromtimestamp(now_ms // 1000, datetime.UTC)
    time = now.strftime("%Y%m%dT%H%M%SZ")
    request = AWSRequest(
        method="POST",
        url=f"https://{HOST}/",
        headers={"X-Amz-Date": time, "X-Amz-Target": f"DynamoDB_20120810.{operation}"},
        data=body,
    )
    request.context["timestamp"] = time
    if credentials.session_token:
        request.headers["X-Amz-Security-Token"] = credentials.session_token
    vendor = SigV4Auth(VendorsCredentials(credentials.key_id, credentials.secret), "dynamodb", REGION)
    to_sign = vendor.string_to_sign(request, vendor.canonical_request(request))
    scope = f"{time[:8]}/{REGION}/dynamodb/aws4_request"
    names = vendor.signed_headers(vendor.headers_to_sign(request))
    return (
        f"AWS4-HMAC-SHA256 Credential={credentials.key_id}/{scope}, SignedHeaders={names}, "
        f"Signature={vendor.signature(to_sign, request)}"
    )


def _header(head: bytes, name: str) -> str | None:
    for line in head.decode().split("\r\n"):
        key, _, value = line.partition(": ")
        if key == name:
            return value
    return None

"""Bodies, queries and headers that no document describes: whatever arrives, the answer is a documented refusal."""

import http.client
import json
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.system.sample_data import SampleData
from tests.system.server_process import serving
from tests.system.users import ANSWER_S, request

Json = Any

# Text with halves of surrogate pairs: JSON can say them, Unicode cannot.
texts = st.text(st.characters(exclude_categories=()), max_size=20)
numbers = st.integers() | st.integers(-(10**40), 10**40) | st.floats()
values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
broken = st.sampled_from(
    [
        b"",
        b" ",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"{",
        b'{"name":"\xed\xa0\x80"}',
        b'{"name":"a","name":"b"}',
        b'{"name":"\\u0000"}',
        b'{"last_acked_sequence":1e400,"duration_hours":-0.0}',
        b"{}{}",
        b"[" * 20_000,
        b'{"name":' * 5_000,
        b"9" * 5_000,
        b'{"member_ids":[' + b'"a",' * 9_000 + b'"b"]}',
        b"a" * 65_537,
        "{}".encode("utf-16"),
    ]
)
media_types = st.sampled_from(
    ["application/json", "application/json; charset=utf-8", "application/json;charset=utf-16", "text/plain", "*/*", ""]
)

query_values = st.sampled_from(["", "0", "-1", "1e3", "9" * 30, "true", "%00", "%ff", "%", "+", "a=b"]) | texts.map(
    lambda text: quote(text, errors="replace")
)
ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=70)
header_values = st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=40) | st.sampled_from(
    ["Bearer", "Bearer ", "bearer a.b.c", "Bearer " + "a" * 5_000, "Basic YTpi", "11111111-1111-4111-8111-111111111111"]
)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleData]:
    with serving(tmp_path_factory.mktemp("pestered") / "data") as server:
        yield SampleData(server)


@pytest.fixture(scope="module")
def document(sample: SampleData) -> Json:
    return request(sample.server, "GET", "/api/v1/openapi.json").json


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_json_for_any_operation_is_answered_as_documented(
    sample: SampleData, document: Json, data: st.DataObject
) -> None:
    bodies = [(path, method) for path, method, each in _operations(document) if "requestBody" in each]
    path, method = data.draw(st.sampled_from(bodies), "operation")
    operation = document["paths"][path][method]
    known = st.fixed_dictionaries({}, optional=dict.fromkeys(_fields(operation, document), values))
    body = data.draw((known | values).map(lambda value: json.dumps(value).encode()) | broken | st.binary(), "body")
    media_type = data.draw(st.just("application/json") | media_types, "media type")
    _ask(sample, operation, method, _with_ids(path, sample), body, {"Content-Type": media_type})


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_ids_and_queries_are_answered_as_documented(
    sample: SampleData, document: Json, data: st.DataObject
) -> None:
    reads = [path for path, method, _ in _operations(document) if method == "get"]
    path = data.draw(st.sampled_from(reads), "path")
    operation = document["paths"][path]["get"]
    names = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
    pairs = data.draw(st.lists(st.tuples(st.sampled_from([*names, "other", ""]), query_values), max_size=4), "query")
    query = "&".join([f"{name}={text}" for name, text in pairs])
    some_id = data.draw(st.none() | ids, "id")
    _ask(sample, operation, "get", f"{_with_ids(path, sample, some_id)}?{query}")


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_headers_are_answered_as_documented(sample: SampleData, document: Json, data: st.DataObject) -> None:
    operations = [(path, method) for path, method, _ in _operations(document) if not _ends_sessions(path, method)]
    path, method = data.draw(st.sampled_from(operations), "operation")
    names = ["Authorization", "X-Device-ID", "Idempotency-Key", "X-Request-ID", "X-Forwarded-For", "Origin", "Accept"]
    headers = data.draw(st.dictionaries(st.sampled_from(names), header_values, max_size=3), "headers")
    _ask(sample, document["paths"][path][method], method, _with_ids(path, sample), b"{}", headers)


def _ask(
    sample: SampleData,
    operation: Json,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Json = MappingProxyType({}),
) -> None:
    """Fails for an answer that the document does not mention, or that has not the one shape of all errors."""
    caller = sample.newcomer() if target.endswith("/logout") else sample.alice
    sent = {"Authorization": f"Bearer {caller.access_token}", "Content-Type": "application/json", **headers}
    connection = http.client.HTTPConnection(sample.server.host, sample.server.port, timeout=ANSWER_S)
    try:
        connection.request(method.upper(), target, body or None, sent)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    assert str(response.status) in operation["responses"], (response.status, text)
    assert response.status < 500, text
    if response.status >= 400:
        error = json.loads(text)["error"]
        assert error["code"]
        assert error["message"]
        assert error["request_id"] == response.headers["X-Request-ID"]


def _operations(document: Json) -> list[tuple[str, str, Json]]:
    return [(path, method, each) for path, methods in document["paths"].items() for method, each in methods.items()]


def _ends_sessions(path: str, method: str) -> bool:
    return path.endswith("/logout") or (method == "delete" and "/sessions" in path)


def _fields(operation: Json, document: Json) -> list[str]:
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return list(document["components"]["schemas"][reference.rpartition("/")[2]]["properties"])


def _with_ids(path: str, sample: SampleData, some_id: str | None = None) -> str:
    real = {
        "chat_id": sample.group,
        "user_id": sample.bob.user_id,
        "message_id": sample.message_ids[0],
        "sequence": "1",
    }
    return path.format_map(dict.fromkeys([*real, "session_id"], quote(some_id, safe="")) if some_id else real)

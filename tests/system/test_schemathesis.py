"""The OpenAPI document and the server agree: whatever is asked, the answer is one that the document promises.

Requests are made from the document by schemathesis, valid and invalid ones, always the same; the ids in them are real.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import schemathesis
from schemathesis import CheckContext, Response, checks
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.schemas import BaseSchema

from tests.support.soak import repeat
from tests.system.request_filler import AnyCase, fill_request
from tests.system.sample_data import SampleData
from tests.system.server_process import serving
from tests.system.users import request

Json = dict[str, Any]

CONFIG: Json = {
    "seed": 1,
    "generation": {
        "deterministic": True,
        "database": "none",
        "max-examples": repeat(10, soak=100),
        "no-shrink": True,  # a request that changed something cannot be repeated in smaller forms
        "with-security-parameters": False,  # who asks is decided here: the tool would make tokens up
    },
    # A lookup takes a quarter of a second on purpose.
    "operations": [{"include-path": "/api/v1/users/lookup", "generation": {"max-examples": 8}}],
}
CHAT = "/api/v1/chats/{chat_id}"

# What is wrong with a document, where that shows, how to make it wrong, and what is then found.
LIES: dict[str, tuple[str, Callable[[Json], object], str]] = {
    "a status is not mentioned": (
        CHAT,
        lambda document: document["paths"][CHAT]["get"]["responses"].pop("403"),
        "Undocumented status code",
    ),
    "an error code is another": (
        CHAT,
        lambda document: document["components"]["responses"].update(
            NOT_A_MEMBER=document["components"]["responses"]["NOT_FOUND"]
        ),
        "Response violates schema",
    ),
    "a field is not mentioned": (
        CHAT,
        lambda document: document["components"]["schemas"]["MemberView"].update(properties={}, required=[]),
        "Response violates schema",
    ),
    "a header is promised that is not sent": (
        CHAT,
        lambda document: document["paths"][CHAT]["get"]["responses"]["200"]["headers"].update(
            {"X-Nonsense": {"required": True, "schema": {"type": "string"}}}
        ),
        "Missing required response headers",
    ),
    "more is allowed than is taken": (
        f"{CHAT}/members",
        lambda document: document["paths"][f"{CHAT}/members"]["get"]["parameters"][1]["schema"].pop("maximum"),
        "valid_data_is_not_called_malformed",
    ),
    "less is allowed than is taken": (
        f"{CHAT}/members",
        lambda document: document["paths"][f"{CHAT}/members"]["get"]["parameters"][1]["schema"].update(maximum=50),
        "Schema-violating request accepted",
    ),
    "a token is asked for that no route needs": (
        "/health",
        lambda document: document["paths"]["/health"]["get"].update(security=[{"bearer": []}]),
        "API accepts requests without authentication",
    ),
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleData]:
    with serving(tmp_path_factory.mktemp("asked") / "data") as server:
        yield SampleData(server)


@pytest.fixture
def document(sample: SampleData) -> Json:
    return closed(request(sample.server, "GET", "/api/v1/openapi.json").json)


@pytest.mark.timeout(180)
def test_whatever_is_asked_the_answer_is_a_documented_one(
    sample: SampleData, document: Json, subtests: pytest.Subtests
) -> None:
    schema = schemathesis.openapi.from_dict(document, config=schemathesis.Config.from_dict(CONFIG))
    with requests.Session() as session:
        asking = Asking(sample, session)
        for label, test in each_operation(schema, asking):
            with subtests.test(label):
                test()
                never = successes_of(document, label) - asking.seen[label]
                assert not never, "never seen: the requests to this path are not sensible enough"
    assert [line for line in sample.server.lines() if line["level"] in ("error", "critical")] == []


@pytest.mark.parametrize("lie", LIES)
def test_a_document_that_says_anything_else_is_caught(sample: SampleData, document: Json, lie: str) -> None:
    path, change, found = LIES[lie]
    change(document)
    document["paths"] = {path: document["paths"][path]}
    schema = schemathesis.openapi.from_dict(document, config=schemathesis.Config.from_dict(CONFIG))
    with requests.Session() as session:
        tests = dict(each_operation(schema, Asking(sample, session)))
        with pytest.raises(FailureGroup, match=found):
            tests[f"GET {path}"]()


class Asking:
    """Sends what the tool makes up, and judges the answers. `seen` is every status, by operation."""

    def __init__(self, sample: SampleData, session: requests.Session) -> None:
        self.seen: dict[str, set[int]] = defaultdict(set)
        self._world = sample
        self._session = session
        self._url = f"http://{sample.server.host}:{sample.server.port}"
        checks.load_all_checks()
        self._checks = [
            checks.not_a_server_error,
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_headers_conformance,
            checks.response_schema_conformance,
            checks.negative_data_rejection,
            checks.missing_required_header,
            checks.unsupported_method,
            checks.allow_header_conformance,
            checks.ignored_auth,
            valid_data_is_not_called_malformed,
        ]

    def __call__(self, case: AnyCase) -> None:
        caller = fill_request(case, self._world)
        signed_in = "security" in case.operation.definition.raw
        headers = {"Authorization": f"Bearer {caller.access_token}"} if signed_in else None
        response = case.call_and_validate(
            base_url=self._url, session=self._session, headers=headers, checks=self._checks
        )
        self.seen[case.operation.label].add(response.status_code)


def valid_data_is_not_called_malformed(ctx: CheckContext, response: Response, case: AnyCase) -> None:
    """What the document allows may be impossible, forbidden or too late. It is never wrong in itself."""
    assert case.meta is not None
    if response.status_code == 400 and not any(each.mode.is_negative for each in case.meta.components.values()):
        assert response.json()["error"]["code"] not in ("BAD_REQUEST", "VALIDATION_ERROR"), response.text


def each_operation(schema: BaseSchema, ask: Callable[[AnyCase], None]) -> Iterator[tuple[str, Callable[[], None]]]:
    """One test per operation. The tool's own way into pytest does not know the newest pytest."""

    def asked(case: AnyCase) -> None:
        ask(case)

    for result in get_all_tests(schema=schema, test_func=asked, settings=None, given_kwargs=None):
        assert isinstance(result, Ok), result
        operation, test = result.ok()
        yield operation.label, test


def successes_of(document: Json, label: str) -> set[int]:
    method, path = label.split(" ")
    return {int(status) for status in document["paths"][path][method.lower()]["responses"] if status < "300"}


def closed(document: Json) -> Json:
    """The same document, but a field of an answer that it does not mention is a mistake."""
    taken = {name for each in _operations(document) for name in _named(each.get("requestBody", {}), document)}
    components = document["components"]["schemas"]
    answers = [each.get("responses", {}) for each in _operations(document)]
    for schema in [*answers, *(components[name] for name in components if name not in taken)]:
        _close(schema)
    return document


def _operations(document: Json) -> list[Json]:
    return [operation for path in document["paths"].values() for operation in path.values()]


def _named(part: object, document: Json) -> Iterator[str]:
    """The schemas that a part of the document refers to, also through others."""
    for reference in [each["$ref"] for each in _objects(part) if "$ref" in each]:
        name = reference.rpartition("/")[2]
        yield name
        yield from _named(document["components"]["schemas"][name], document)


def _close(part: object) -> None:
    for each in _objects(part):
        if each.get("type") == "object" and "properties" in each:
            each["additionalProperties"] = False


def _objects(part: object) -> Iterator[Json]:
    if isinstance(part, dict):
        yield part
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _objects(each)

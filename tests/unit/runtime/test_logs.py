"""Log lines: one JSON object or one line for people each, and no secret in any of them, whatever is logged."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from seriatim.domain.errors import ServiceUnavailable
from seriatim.runtime.telemetry.logs import ThrottledLogger, log_event, log_failure, set_up

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1c3JfMSJ9.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"
REFRESH = "sess_01J9ZK.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
PHONE = "+4915112345678"
LOG = logging.getLogger("seriatim.test")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("seriatim")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before


@pytest.fixture
def out() -> io.StringIO:
    stream = io.StringIO()
    set_up(form="auto", level="info", instance="here", stream=stream)
    return stream


def _line(out: io.StringIO) -> dict[str, object]:
    [line] = out.getvalue().splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_away_from_a_terminal_a_line_is_one_json_object(out: io.StringIO) -> None:
    log_event(LOG, logging.WARNING, "it_happened", port=8080, names=("a", "b"), note="two\nlines")
    line = _line(out)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("ts")))
    assert line == {
        "level": "warning",
        "event": "it_happened",
        "instance": "here",
        "port": 8080,
        "names": ["a", "b"],
        "note": "two\nlines",
    }


def test_what_is_less_important_than_the_level_is_left_out(out: io.StringIO) -> None:
    log_event(LOG, logging.DEBUG, "detail")
    logging.getLogger("somebody.else").info("chatter")
    assert out.getvalue() == ""


def test_a_foreign_line_comes_out_in_the_same_form(out: io.StringIO) -> None:
    logging.getLogger("somebody.else").warning("hello %s", "world")
    line = _line(out)
    assert (line["event"], line["logger"], line["text"]) == ("library", "somebody.else", "hello world")


@pytest.mark.parametrize(
    "fields",
    [
        {"token": TOKEN},
        {"Authorization": "Basic abc"},
        {"refresh_token": REFRESH},
        {"otp": "123456"},
        {"code": "123456"},
        {"content": "good morning"},
        {"query": "a=b"},
        {"details": {"content": "good morning"}},
        {"details": [{"token": "opaque"}]},
        {"note": f"they sent {TOKEN} again"},
        {"note": f"Bearer {TOKEN[:30]}"},
        {"note": "bearer.opaque-token"},
        {"note": REFRESH},
    ],
)
def test_a_secret_is_hidden_by_its_name_or_by_its_shape(out: io.StringIO, fields: dict[str, object]) -> None:
    log_event(LOG, logging.INFO, "event", **fields)
    text = out.getvalue()
    assert "[hidden]" in text
    for secret in (TOKEN[:30], "Basic", "AAAAAAAA", "123456", "good morning", "a=b", "opaque"):
        assert secret not in text


def test_a_phone_number_is_masked_wherever_it_stands(out: io.StringIO) -> None:
    log_event(LOG, logging.INFO, "event", phone_number=PHONE, note=f"call {PHONE}!")
    line = _line(out)
    assert (line["phone_number"], line["note"]) == ("+49*********78", "call +49*********78!")


def test_a_library_that_logs_a_token_does_not_leak_it(out: io.StringIO) -> None:
    logging.getLogger("somebody.else").error("GET /ws?token=%s", TOKEN)
    assert TOKEN[:30] not in out.getvalue()


def test_a_bug_is_logged_with_its_place_and_without_its_words(out: io.StringIO) -> None:
    try:
        raise KeyError("good morning")
    except KeyError as error:
        log_failure(LOG, "bug", error)
        logging.getLogger("asyncio").exception("a task failed")
    assert "good morning" not in out.getvalue()
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["error"] == second["error"] == "KeyError"
    assert "test_logs.py" in first["trace"][0]


def test_our_own_errors_keep_their_words_which_name_no_secrets(out: io.StringIO) -> None:
    log_failure(LOG, "failure", ServiceUnavailable("the disk is full"))
    assert _line(out)["error"] == "ServiceUnavailable: the disk is full"


def test_half_a_character_does_not_lose_the_line(out: io.StringIO) -> None:
    log_event(LOG, logging.INFO, "event", note="\ud800")
    assert _line(out)["note"] == "?"


def test_what_json_does_not_know_is_logged_as_text(out: io.StringIO) -> None:
    log_event(LOG, logging.INFO, "event", thing=object)
    assert _line(out)["thing"] == "<class 'object'>"


def test_on_a_terminal_people_read_time_level_event_and_fields() -> None:
    stream = io.StringIO()
    set_up(form="pretty", level="info", instance="here", stream=stream)
    log_event(LOG, logging.INFO, "listening", port=8080, token="opaque")
    assert re.fullmatch(r"\d\d:\d\d:\d\d info +listening +port=8080 +token=\[hidden\]\n", stream.getvalue())


def test_on_a_terminal_no_value_forges_a_line_by_breaking_one() -> None:
    stream = io.StringIO()
    set_up(form="pretty", level="info", instance="here", stream=stream)
    log_event(LOG, logging.INFO, "event", note="a\n12:00:00 info     all_is_well\x1b[31m")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b[31m" not in stream.getvalue()


def test_an_event_that_repeats_is_logged_once_in_a_while_with_how_often_it_was_kept_back(out: io.StringIO) -> None:
    now = 100.0
    throttled = ThrottledLogger(LOG, every_s=10.0, now=lambda: now)
    for _ in range(3):
        throttled.log(logging.CRITICAL, "page", chat_id="chat_1")
    throttled.log(logging.CRITICAL, "another")
    now = 110.0
    throttled.log(logging.CRITICAL, "page", chat_id="chat_2")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["event"], line.get("not_logged")) for line in lines] == [
        ("page", None),
        ("another", None),
        ("page", 2),
    ]

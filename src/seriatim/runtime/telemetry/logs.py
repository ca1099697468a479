"""Log lines: one event and its fields each, JSON for machines, coloured on a terminal. No secret gets through.

`log_event(logger, level, "listening", port=8080)` is the way to log; foreign libraries come out in the same form.
"""

import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

import msgspec

from seriatim.domain.errors import SeriatimError
from seriatim.domain.times import iso
from seriatim.engines.inprocess.code_sender import masked_phone

if TYPE_CHECKING:
    from rich.console import Console

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
Fields = Mapping[str, object]


def set_up(*, form: str, level: str, instance: str, stream: TextIO | None = None) -> None:
    """From now on every log line of this process goes to `stream` (stderr), in this form: pretty, json or auto."""
    stream = stream or sys.stderr
    handler = PrettyHandler(stream) if is_pretty(form, stream) else JsonHandler(stream, instance)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # what libraries log below that is not for operators
    set_level(level)


def set_level(level: str) -> None:
    logging.getLogger("seriatim").setLevel(LEVELS[level])


def log_event(logger: logging.Logger, level: int, event: str, /, **fields: object) -> None:
    if logger.isEnabledFor(level):
        logger.log(level, "%s", event, extra={"fields": fields})


def log_failure(logger: logging.Logger, event: str, error: BaseException, /, **fields: object) -> None:
    """A bug: where it happened, but not what it said, which may quote what people wrote."""
    log_event(logger, logging.ERROR, event, **fields, **described(error))


def described(error: BaseException) -> dict[str, object]:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    where = [f"{frame.filename.rpartition('/src/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    text = error.log_reason if isinstance(error, SeriatimError) else str(error) if isinstance(error, OSError) else ""
    return {"error": f"{type(error).__name__}: {text}" if text else type(error).__name__, "trace": where}


FRAMES_MAX = 20  # the innermost ones; a recursion without end must not become a line without end


def is_pretty(form: str, stream: TextIO) -> bool:
    return form == "pretty" or (form == "auto" and stream.isatty())


class JsonHandler(logging.StreamHandler[TextIO]):
    """One object per line."""

    def __init__(self, stream: TextIO, instance: str) -> None:
        super().__init__(stream)
        self._instance = instance

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _parts(record)
        line = {
            "ts": iso(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "event": event,
            "instance": self._instance,
        }
        return msgspec.json.encode({**line, **fields, **line}, enc_hook=str).decode()  # a field cannot replace them


class PrettyHandler(logging.StreamHandler[TextIO]):
    """For people: time, level, event, then the fields."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._console: Console | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._print(record)
        except Exception:
            self.handleError(record)

    def _print(self, record: logging.LogRecord) -> None:
        from rich.console import Console  # costs tens of milliseconds at start, and a server in the dark needs none
        from rich.text import Text

        if self._console is None:
            self._console = Console(file=self.stream, soft_wrap=True, highlight=False)
        event, fields = _parts(record)
        trace = fields.pop("trace", ())
        line = Text.assemble(
            (time.strftime("%H:%M:%S ", time.localtime(record.created)), "dim"),
            (f"{record.levelname.lower():<8} ", _COLOURS.get(record.levelname, "")),
            (event, "bold"),
        )
        for name, value in fields.items():
            text = str(value)
            line.append(f"  {name}=", "dim").append(text if text.isprintable() else repr(text))
        for where in trace if isinstance(trace, Sequence) else ():
            line.append(f"\n           {where}", "dim")
        self._console.print(line)


_COLOURS = {"DEBUG": "dim", "INFO": "green", "WARNING": "yellow", "ERROR": "bold red", "CRITICAL": "bold white on red"}


def _parts(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """Event and fields, without secrets. A foreign line becomes the event `library` with its text as a field."""
    fields = getattr(record, "fields", None)
    if fields is None:
        event, fields = "library", {"logger": record.name, "text": record.getMessage()[:TEXT_CHARS_MAX]}
    else:
        event = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        fields = {**fields, **described(record.exc_info[1])}
    return event, redacted(fields)


TEXT_CHARS_MAX = 1000  # of a foreign line

# --- secrets ----------------------------------------------------------------------------------------------------------

_OPENS_DOORS = (
    "token",
    "access_token",
    "refresh_token",
    "authorization",
    "cookie",
    "password",
    "secret",
    "otp",
    "code",
)
_PRIVATE = ("content", "query", "query_string")
SECRET_KEYS = frozenset((*_OPENS_DOORS, *_PRIVATE))
PHONE_KEYS = frozenset(("phone", "phone_number"))
HIDDEN = "[hidden]"


def redacted(fields: Fields) -> dict[str, object]:
    """By the name of the field, and by shape wherever a token or a phone number got into a text."""
    return {name: _redacted(name, value) for name, value in fields.items()}


def _redacted(name: str, value: object) -> object:
    plain = name.lower().replace("-", "_")
    if plain in SECRET_KEYS:
        return HIDDEN
    if plain in PHONE_KEYS:
        return masked_phone(str(value))
    if isinstance(value, str):
        text = value.encode(errors="replace").decode()  # half a surrogate pair must not cost us the line
        return _PHONE.sub(lambda found: masked_phone(found.group()), _TOKEN.sub(HIDDEN, text))
    if isinstance(value, Mapping):
        return {str(key): _redacted(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(name, each) for each in value]
    return value


# A JWT, whole or cut short, and what a client offers as a subprotocol; a refresh token is a session id and a secret.
_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*){0,2}|bearer\.\S+|\bsess_\w+\.[A-Za-z0-9_-]{20,}", re.I)
_PHONE = re.compile(r"\+[1-9][0-9]{6,14}\b")


# --- events that may repeat a thousand times a second -----------------------------------------------------------------


class ThrottledLogger:
    """Logs an event at most once in a while, and then says how often it was kept back."""

    def __init__(self, logger: logging.Logger, *, every_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._every_s = every_s
        self._now = now
        self._last: dict[str, float] = {}  # by event: there are only so many names of events
        self._held: dict[str, int] = {}

    def log(self, level: int, event: str, /, **fields: object) -> None:
        now = self._now()
        if now - self._last.get(event, -self._every_s) < self._every_s:
            self._held[event] = self._held.get(event, 0) + 1
            return
        self._last[event] = now
        if held := self._held.pop(event, 0):
            fields["not_logged"] = held
        log_event(self._logger, level, event, **fields)

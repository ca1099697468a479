"""Which names are retired, and where: words that a reader of the field would not have guessed.

Two rules, both about names that a module defines (its own name, classes, functions, parameters, variables, attributes):

- `NAMES`: exact names. Where the name is also ordinary English (`whole`, `look`), the rule holds for one folder, or for
  one kind of name only.
- `WORDS`: parts of names. `town` is retired in `town`, `make_town` and `SharedTown`.

A test function is a sentence, so its name is free.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

CLASS, FUNCTION, VARIABLE, MODULE = "class", "function", "variable", "module"
EVERY_KIND = (CLASS, FUNCTION, VARIABLE, MODULE)

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


class Name(msgspec.Struct, frozen=True):
    """A name that a module defines."""

    text: str
    kind: str
    module: str
    line: int

    @property
    def parts(self) -> list[str]:
        return [part.lower() for part in _PART.findall(self.text)]

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.kind} {self.text}"


class Retired(msgspec.Struct, frozen=True):
    """Names that are retired below `folder`, except below the folders of `kept_in`."""

    names: tuple[str, ...]
    instead: str
    kinds: tuple[str, ...] = EVERY_KIND
    folder: str = ""
    kept_in: tuple[str, ...] = ()

    def holds_for(self, name: Name) -> bool:
        below = name.module.startswith(self.folder) and not name.module.startswith(self.kept_in or "/")
        return below and name.kind in self.kinds


def _classes(instead: str, *names: str, folder: str = "", kept_in: tuple[str, ...] = ()) -> Retired:
    """Retired as names of classes, private ones too."""
    return Retired((*names, *(f"_{name}" for name in names)), instead, (CLASS,), folder, kept_in)


_SRC = "src/seriatim/"
_TESTS = "tests/"

NAMES = (
    # durability and its ports
    _classes("AtomicCommitter", "Express"),
    _classes("AtomicStore, AtomicTransaction", "OneStep", "Step"),
    _classes("ChatCounter", "Standing"),
    _classes("PublishItem", "Outgoing"),
    Retired(("_go_the_long_way",), "_submit_to_pipeline"),
    Retired(("stand",), "put_counter", (FUNCTION,)),
    Retired(("persistently",), "retry_refused"),
    # runtime
    _classes("EngineSet", "World", kept_in=(f"{_SRC}simulation/", "tests/simulation/")),
    _classes("GatewayPorts", "ForGateway"),
    _classes("ApiDependencies", "Behind"),
    # connection
    _classes("UpgradeRequest", "Joining"),
    _classes("AsgiRequest", "Exchange"),
    _classes("QueuedRequest", "Turn"),
    _classes("FlushScheduler", "TurnEnd"),
    _classes("ChatDelivery", "Chats", folder=f"{_SRC}connection/"),
    _classes("ReorderBuffer", "Shelf"),
    _classes("FixedWindowLimiter", "Attempts"),
    _classes("RevocationRecheck", "Recheck"),
    Retired(
        ("whole", "gone"),
        "body_complete, disconnected",
        (FUNCTION, VARIABLE),
        f"{_SRC}connection/listener/",
    ),
    Retired(
        ("_talks", "_parted", "_strange", "_rest"),
        "_open, _write_closed, _use_codec, _partial_frame",
        (FUNCTION, VARIABLE),
        f"{_SRC}connection/listener/",
    ),
    # api
    _classes("IdempotencyGuard", "Once"),
    _classes("RequestPipeline", "Edge"),
    _classes("RequestContext", "Visit"),
    _classes("DisplayNames", "Names"),
    _classes("HistoryReader", "Reading"),
    Retired(("back", "forth"), "before, after", (FUNCTION,), f"{_SRC}api/"),
    # engines
    _classes("ReadSnapshot, WriteTransaction", "Look", "View"),
    Retired(("build", "enlist", "put_soon", "look"), "commit, read", folder=f"{_SRC}engines/embedded/"),
    _classes("DraftStream", "Line"),
    _classes("IngestPeer", "Peer", folder=_SRC),
    _classes("PendingSend", "Sending"),
    _classes("GatewayStream", "Conversation"),
    _classes("ServerBatch", "Words"),
    _classes("WireError", "Trouble"),
    _classes("RedisConnection", "Link", folder=f"{_SRC}engines/"),
    _classes("AssignedPartitions, PartitionPosition", "Holder", "Holding"),
    # operations and events
    Retired(("wrongs",), "validate"),
    _classes("InspectionError", "CannotLook"),
    _classes("DeadLetter", "Letter"),
    Retired(("lifted", "_lifted"), "rate_limits_off", kept_in=("bench/",)),
)

WORDS = (
    Retired(("company",), "batch"),
    Retired(("desk",), "chat_api_harness"),
    Retired(("doctor",), "repairer"),
    Retired(("door",), "listener, access"),
    Retired(("glance",), "secondary"),
    Retired(("house",), "listener_harness"),
    Retired(("parcel", "parcels"), "envelope"),
    Retired(("town",), "cluster_harness"),
    Retired(("aftermath",), "outcome"),
    Retired(("bury", "buried"), "write, written"),
    Retired(("expressly",), "atomic"),
    Retired(("hopeless",), "expired"),
    Retired(("hungry", "hushed"), "wants_body, peer_half_closed"),
    Retired(("lateness",), "queue_delay"),
    Retired(("seldom",), "throttled"),
    Retired(("told", "untold"), "decoded, reported, event_not_published"),
    Retired(("bench",), "durability_harness", folder=_TESTS, kept_in=("tests/unit/bench/",)),
    Retired(("kit",), "gateway_harness", folder=_TESTS),
    Retired(("scene",), "delivery_harness", folder=_TESTS),
    Retired(("stage",), "fault_deployment", folder=_TESTS),
    Retired(("crossing",), "misrouting_proxy"),
    Retired(("knocking",), "handshake_client"),
    Retired(("sensible",), "request_filler"),
)


def retired(source: str, module: str) -> Iterator[tuple[Name, str]]:
    """The retired names that this module defines, each with what is said instead. `module` is its path."""
    if not _may_have_one(source, module):
        return
    for name in defined(source, module):
        if name.kind == FUNCTION and name.text.startswith("test_"):
            continue
        for rule in NAMES:
            if name.text in rule.names and rule.holds_for(name):
                yield name, rule.instead
        for rule in WORDS:
            if rule.holds_for(name) and not set(rule.names).isdisjoint(name.parts):
                yield name, rule.instead


def _may_have_one(source: str, module: str) -> bool:
    """Most modules have none of these words at all, and need not be parsed."""
    words = {PurePosixPath(module).stem, *_WORD.findall(source)}
    text = " ".join(words).lower()
    return any(module.startswith(rule.folder) and not words.isdisjoint(rule.names) for rule in NAMES) or any(
        part in text for rule in WORDS for part in rule.names if module.startswith(rule.folder)
    )


def defined(source: str, module: str) -> Iterator[Name]:
    """Every name that this module defines: its own, and those of its classes, functions and variables."""
    yield Name(PurePosixPath(module).stem, MODULE, module, 1)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef():
                yield Name(node.name, CLASS, module, node.lineno)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Name(node.name, FUNCTION, module, node.lineno)
            case ast.arg():
                yield Name(node.arg, VARIABLE, module, node.lineno)
            case ast.Name(ctx=ast.Store()):
                yield Name(node.id, CLASS if _names_a_type(node.id) else VARIABLE, module, node.lineno)
            case ast.Attribute(ctx=ast.Store()):
                yield Name(node.attr, VARIABLE, module, node.lineno)
            case ast.alias(asname=str(alias)):
                yield Name(alias, VARIABLE, module, node.lineno)
            case ast.ExceptHandler(name=str(caught)) | ast.MatchAs(name=str(caught)) | ast.MatchStar(name=str(caught)):
                yield Name(caught, VARIABLE, module, node.lineno)


def _names_a_type(name: str) -> bool:
    """An alias like `Row = dict[str, bytes]` is a class to its reader."""
    return name.lstrip("_")[:1].isupper() and not name.isupper()

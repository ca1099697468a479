"""A limit is read when it is needed, so that the simulator can tighten it by changing one object."""

from collections.abc import Mapping
from pathlib import Path

import seriatim
from seriatim.simulation.tight_limits import tightened
from tests.simulation.limit_reads import read_at_import

SOURCE = Path(seriatim.__file__).parent

_SCHEMA = "bounds in the schemas of requests, frames and events, and in the texts that document them"
_PATTERN = "a regular expression that is compiled once"
_CACHE = "the size of a cache of a function"
_DEFAULT = "a default of an argument: tests pass another value"
_DURATION = "a duration that an engine adds to each row or key, computed once"
_CLIENT_OPTION = "an option of a client library, given when it connects"

# Modules that read a limit at import time, and why they may: none of these limits is tightened.
ALLOWED: Mapping[str, str] = {
    "api/auth.py": _SCHEMA,
    "api/chat_list.py": _SCHEMA,
    "api/chats.py": _SCHEMA,
    "api/core/fields.py": _SCHEMA,
    "api/core/openapi_parts.py": _SCHEMA,
    "api/core/parse.py": "the length of the largest sequence as text",
    "api/delivery.py": _SCHEMA,
    "api/find_message.py": _SCHEMA,
    "api/health.py": _SCHEMA,
    "api/history_reader.py": "the first sequence that no message can have",
    "api/members.py": _SCHEMA,
    "api/messages.py": _SCHEMA,
    "api/users.py": _SCHEMA,
    "cli/check.py": "the default of an option, shown in its help",
    "domain/account.py": _PATTERN,
    "domain/errors.py": _DEFAULT,
    "domain/events.py": _SCHEMA,
    "domain/ids.py": _PATTERN,
    "domain/sharding.py": _CACHE,
    "domain/tokens.py": _PATTERN,
    "durability/deadline.py": _DEFAULT,
    "durability/guards.py": _DEFAULT,
    "engines/dynamodb/transport/connection_pool.py": _DEFAULT,
    "engines/embedded/storage/rows.py": _CACHE,
    "engines/grpc/dial.py": _CLIENT_OPTION,
    "engines/inprocess/directory.py": _DURATION,
    "engines/inprocess/quotas.py": _DEFAULT,
    "engines/inprocess/revocations.py": f"{_DURATION}; {_DEFAULT}",
    "engines/kafka/event_reader.py": _CLIENT_OPTION,
    "engines/kafka/producer.py": _DEFAULT,
    "engines/redis/directory.py": _DURATION,
    "engines/redis/revocations.py": _DURATION,
    "engines/shared/store_rules.py": _DEFAULT,
    "operations/topics.py": "the settings of topics, as they are created",
    "protocol/asyncapi.py": _SCHEMA,
    "protocol/frames.py": _SCHEMA,
    "runtime/config/settings.py": "the default of a setting, shown in its help",
    "runtime/server/cluster.py": "the sum of two durations",
}


def test_only_named_modules_read_a_limit_at_import_time() -> None:
    found = [module for module, names in at_import().items() if names]
    assert [module for module in found if module not in ALLOWED] == []
    assert [module for module in ALLOWED if module not in found] == [], "these need no exception any more"


def test_no_tightened_limit_is_read_at_import_time() -> None:
    escaped = {module: [name for name in names if name in tightened()] for module, names in at_import().items()}
    assert {module: names for module, names in escaped.items() if names} == {}


def test_no_module_imports_a_limit_by_its_name() -> None:
    found = [module for module, source in sources().items() if "from seriatim.domain.limits import" in source]
    assert found == []


def test_the_walk_finds_constants_defaults_decorators_and_classes_and_no_function_bodies() -> None:
    source = """
A = limits.CONSTANT + 1
@decorated(limits.DECORATOR)
def f(x=limits.DEFAULT, *, y: Annotated[int, limits.ANNOTATION] = 1):
    return limits.BODY
class C:
    a = limits.CLASS_BODY
    def g(self): return limits.METHOD_BODY
h = lambda x=limits.LAMBDA_DEFAULT: limits.LAMBDA_BODY
"""
    found = ["CONSTANT", "DECORATOR", "ANNOTATION", "DEFAULT", "CLASS_BODY", "LAMBDA_DEFAULT"]
    assert read_at_import(source) == found


def at_import() -> dict[str, list[str]]:
    return {module: read_at_import(source) for module, source in sources().items()}


def sources() -> dict[str, str]:
    paths = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in paths}

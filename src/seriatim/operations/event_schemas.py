"""Whether the schemas of events changed in a way that every reader can handle (docs/spec/data.md#schema-evolution).

Old readers meet new events, and new readers meet old ones: both for as long as the log keeps events. What is not
listed as allowed is refused; a breaking change is a new type of event.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

Schema = Mapping[str, object]


class SchemaViolation(msgspec.Struct, frozen=True):
    """`field` is its path within the schema, empty for the schema as a whole."""

    schema: str
    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.schema}: {self.field}: {self.what}" if self.field else f"{self.schema}: {self.what}"


def check(base: Mapping[str, Schema], head: Mapping[str, Schema]) -> Sequence[SchemaViolation]:
    """Compares schemas by the names of their files, such as `message-persisted.v1.json`. New names are new events."""
    found: list[SchemaViolation] = []
    for name, old in base.items():
        new = head.get(name)
        if new is None:
            found.append(SchemaViolation(name, "", "removed; the log still holds such events, so it stays"))
        else:
            found += _violations(name, old, new, is_next=False)
    for name, new in head.items():
        before = _version_before(name, base)
        if name not in base and before is not None:
            found += _violations(name, base[before], new, is_next=True)
    return found


def _violations(name: str, old: Schema, new: Schema, *, is_next: bool) -> Iterator[SchemaViolation]:
    for field, what in _compare(old, new, "", is_next=is_next):
        yield SchemaViolation(name, field, what)


def _version_before(name: str, base: Mapping[str, Schema]) -> str | None:
    """The latest version of the same event that the base has, if this name is a later one."""
    family, version = _parts(name)
    earlier = [each for each in base if _parts(each)[0] == family and _parts(each)[1] < version]
    return max(earlier, key=lambda each: _parts(each)[1], default=None)


def _parts(name: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.+)\.v(\d+)\.json", name)
    return (found[1], int(found[2])) if found else (name, 0)


# --- one schema against another --------------------------------------------------------------------------------------

Found = Iterator[tuple[str, str]]

_PROSE = ("$comment", "$id", "$schema", "description", "examples", "title")
_OWN_RULES = ("allOf", "default", "deprecated", "enum", "items", "properties", "required")


def _compare(old: Schema, new: Schema, where: str, *, is_next: bool) -> Found:
    yield from _fields(old, new, where, is_next=is_next)
    yield from _values(old, new, where)
    yield from _conditions(old, new, where)
    yield from _default(old, new, where)
    if new.get("deprecated") and not old.get("deprecated") and not is_next:
        yield where, "deprecated; that is for the next version of the schema"
    if "items" in old and "items" in new:
        yield from _compare(_schema(old["items"]), _schema(new["items"]), f"{where}[]", is_next=is_next)
    elif ("items" in old) != ("items" in new):
        yield where, "what the list holds was " + ("dropped" if "items" in old else "restricted")
    for keyword in dict.fromkeys([*old, *new]):
        if keyword not in _PROSE and keyword not in _OWN_RULES:
            before, after = _comparable(old.get(keyword)), _comparable(new.get(keyword))
            if before != after:
                yield where, f"`{keyword}` changed from {_shown(before)} to {_shown(after)}; make a new type of event"


def _fields(old: Schema, new: Schema, where: str, *, is_next: bool) -> Found:
    before, after = _properties(old), _properties(new)
    were_required, are_required = _names(old.get("required")), _names(new.get("required"))
    for name in dict.fromkeys([*before, *after, *were_required, *are_required]):
        field = f"{where}.{name}" if where else name
        was, is_ = name in before or name in were_required, name in after or name in are_required
        if not is_:
            if name in were_required:
                yield field, "a required field was dropped (or renamed); old readers need it"
        elif not was:
            if name in are_required:
                yield field, "a required field was added; old events lack it"
            elif "default" not in after[name] and not is_next:
                yield field, "an optional field without a default is for the next version; give it a default"
        else:
            if name in are_required and name not in were_required:
                yield field, "optional became required; old events may lack it"
            if name in were_required and name not in are_required:
                yield field, "required became optional; old readers need it"
            yield from _compare(before.get(name, {}), after.get(name, {}), field, is_next=is_next)


def _values(old: Schema, new: Schema, where: str) -> Found:
    if "enum" not in old and "enum" not in new:
        return
    if "enum" not in old or "enum" not in new:
        yield where, "values were " + ("listed that were free" if "enum" in new else "set free that were listed")
        return
    before, after = _names(old["enum"]), _names(new["enum"])
    for value in before:
        if value not in after:
            yield where, f"the value {value} was dropped; old events have it"
    for value in after:
        # A new type of event is always allowed; a reader that does not know it writes a dead letter.
        if value not in before and where != "event_type":
            yield where, f"the value {value} was added; old readers refuse it"


def _conditions(old: Schema, new: Schema, where: str) -> Found:
    before, after = _list(old.get("allOf")), _list(new.get("allOf"))
    for condition in before:
        if condition not in after:
            yield where, f"a condition was dropped or changed: {_shown(condition)}"
    for condition in after:
        if condition not in before and "if" not in _schema(condition):
            yield where, f"a condition was added for all events: {_shown(condition)}"


def _default(old: Schema, new: Schema, where: str) -> Found:
    """Readers fill in the default, so old and new ones would read the same event differently."""
    if "default" in old and old["default"] != new.get("default", old):
        yield where, f"the default changed from {_shown(old['default'])} to {_shown(new.get('default'))}"


# --- JSON has no types of its own ------------------------------------------------------------------------------------


def _properties(schema: Schema) -> Mapping[str, Schema]:
    return {name: _schema(each) for name, each in _schema(schema.get("properties", {})).items()}


def _schema(value: object) -> Schema:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _names(value: object) -> list[str]:
    return [each if isinstance(each, str) else _shown(each) for each in _list(value)]


def _comparable(value: object) -> object:
    """Lists of types are sets; JSON only has lists."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return sorted(value)
    return value


def _shown(value: object) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()

"""Which small changes a source file offers: comparisons, boundaries, conditions, dropped statements, results.

Left alone: docstrings and all other texts, type annotations, decorators, assertions, what is logged, `__slots__`,
`if TYPE_CHECKING`, and constructors' assignments, without which nothing runs at all.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from tools.mutate.mutation import Mutation

Node: TypeAlias = ast.expr | ast.stmt

_COMPARISONS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
}
_COMPARISON = re.compile(rb"<=|>=|==|!=|<|>|\bis\s+not\b|\bnot\s+in\b|\bis\b|\bin\b")
_BINARY: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGS = ("log", "logger", "_log", "_logger", "logging", "warnings")
_TYPES = ("str", "int", "bytes", "float", "bool", "dict", "list")
_NAMES = ("__slots__", "__all__")


def mutations(text: str, path: str) -> list[Mutation]:
    """In the order of the file. The same text gives the same list."""
    return sorted(_Finder(text, path).found(ast.parse(text)))


class _Finder:
    def __init__(self, text: str, path: str) -> None:
        self._raw = text.encode()
        self._path = path
        self._starts = [0]
        for line in self._raw.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def found(self, tree: ast.Module) -> Iterator[Mutation]:
        for statement in tree.body:
            yield from self._statement(statement, function=None)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt, function: "_Function | None") -> Iterator[Mutation]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                # Defaults are expressions; annotations and decorators are left alone.
                yield from self._each([*node.args.defaults, *(each for each in node.args.kw_defaults if each)])
                inner = _Function(node)
                for statement in node.body:
                    yield from self._statement(statement, inner)
                return
            case ast.ClassDef():
                for statement in node.body:
                    yield from self._statement(statement, None)
                return
            case ast.If() if _name(node.test) == "TYPE_CHECKING":
                return
            case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal():
                return
            case ast.Assign() if any(_name(target) in _NAMES for target in node.targets):
                return
            case ast.Expr() if _is_text(node.value) or _is_logged(node.value):
                return
        if function is not None:
            yield from self._dropped(node, function)
        yield from self._parts(node, function)

    def _dropped(self, node: ast.stmt, function: "_Function") -> Iterator[Mutation]:
        """The statement is not there."""
        match node:
            case ast.Expr(value=ast.Call() | ast.Await()) if not _is_super(node.value):
                yield self._change(node, "pass", "a call dropped")
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() if function.does_without(node):
                yield self._change(node, "pass", "an assignment dropped")
            case ast.Delete():
                yield self._change(node, "pass", "`del` dropped")
            case ast.Raise():
                yield self._change(node, "pass", "`raise` dropped")
            case ast.Continue():
                yield self._change(node, "break", "`continue` to `break`")
            case ast.Break():
                yield self._change(node, "continue", "`break` to `continue`")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self._change(value, "None", "the result to `None`")

    def _parts(self, node: ast.stmt, function: "_Function | None") -> Iterator[Mutation]:
        match node:
            case ast.If() | ast.While():
                yield from self._condition(node.test)
            case ast.AugAssign(op=operator) if type(operator) in _BINARY:
                old, new = _BINARY[type(operator)]
                yield from self._between(node.target, node.value, re.escape(old.encode()) + rb"=", new + "=")
            case ast.AnnAssign():
                if node.value is not None:
                    yield from self._expression(node.value)
                return
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.stmt():
                    yield from self._statement(child, function)
                case ast.expr():
                    yield from self._expression(child)
                case ast.ExceptHandler() | ast.match_case():
                    if isinstance(child, ast.match_case) and child.guard is not None:
                        yield from self._condition(child.guard)
                        yield from self._expression(child.guard)
                    for statement in child.body:
                        yield from self._statement(statement, function)
                case ast.withitem():
                    yield from self._expression(child.context_expr)

    # --- expressions --------------------------------------------------------------------------------------------------

    def _each(self, nodes: Iterable[ast.expr]) -> Iterator[Mutation]:
        for node in nodes:
            yield from self._expression(node)

    def _expression(self, node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.JoinedStr():
                return  # a text
            case ast.Compare():
                for left, right in pairwise([node.left, *node.comparators]):
                    yield from self._comparison(left, right)
            case ast.BoolOp():
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in pairwise(node.values):
                    yield from self._between(left, right, rb"\b" + old.encode() + rb"\b", new)
            case ast.UnaryOp(op=ast.Not()):
                yield self._change(node, f"({self._text(node.operand)})", "`not` dropped")
            case ast.IfExp():
                yield from self._condition(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    yield from self._condition(test)
            case ast.BinOp(op=operator) if type(operator) in _BINARY and _is_arithmetic(node):
                old, new = _BINARY[type(operator)]
                yield from self._between(node.left, node.right, re.escape(old.encode()), new)
            case ast.Call(func=ast.Name(id=name)) if name in _CALLS and len(node.args) + len(node.keywords) > 0:
                yield self._change(node.func, _CALLS[name], f"`{name}` to `{_CALLS[name]}`")
            case ast.Constant():
                yield from self._constant(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr | ast.comprehension | ast.keyword):
                yield from self._expression(child)

    def _condition(self, test: ast.expr) -> Iterator[Mutation]:
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            yield self._change(test, f"not ({self._text(test)})", "the condition negated")

    def _comparison(self, left: ast.expr, right: ast.expr) -> Iterator[Mutation]:
        start, end = self._end(left), self._start(right)
        found = _COMPARISON.search(self._raw, start, end)
        if found is not None:
            old = " ".join(found[0].decode().split())
            yield self._span(found.start(), found.end(), _COMPARISONS[old], f"`{old}` to `{_COMPARISONS[old]}`")

    def _constant(self, node: ast.Constant) -> Iterator[Mutation]:
        match node.value:
            case bool():
                yield self._change(node, repr(not node.value), f"`{node.value}` to `{not node.value}`")
            case int():
                for other in (node.value + 1, node.value - 1):
                    yield self._change(node, repr(other), f"`{node.value}` to `{other}`")
            case float():
                other_float = node.value * 2 or 1.0
                yield self._change(node, repr(other_float), f"`{node.value}` to `{other_float}`")

    # --- places in the text -------------------------------------------------------------------------------------------

    def _between(self, left: Node, right: Node, old: bytes, new: str) -> Iterator[Mutation]:
        found = re.compile(old).search(self._raw, self._end(left), self._start(right))
        if found is not None:
            yield self._span(found.start(), found.end(), new, f"`{found[0].decode()}` to `{new}`")

    def _change(self, node: Node, new: str, what: str) -> Mutation:
        return self._span(self._start(node), self._end(node), new, what)

    def _span(self, start: int, end: int, new: str, what: str) -> Mutation:
        line = max(number for number, begins in enumerate(self._starts, start=1) if begins <= start)
        begins = self._starts[line - 1]
        source = self._raw[begins:].partition(b"\n")[0].decode().strip()
        rest = self._raw[end:].partition(b"\n")[0].decode()
        becomes = f"{self._raw[begins:start].decode()}{new}{rest}".strip()
        return Mutation(
            path=self._path, start=start, end=end, new=new, line=line, what=what, source=source, becomes=becomes
        )

    def _text(self, node: Node) -> str:
        return self._raw[self._start(node) : self._end(node)].decode()

    def _start(self, node: Node) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: Node) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


class _Function:
    """Which of its assignments can be left out without a name or attribute being missing at once."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._makes = node.name in ("__init__", "__post_init__", "__new__")
        arguments = node.args
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        stored = [each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        names += [each.id for each in stored]
        self._often = {name for name in names if names.count(name) > 1}

    def does_without(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> bool:
        if isinstance(node, ast.AugAssign):
            return True
        if self._makes or node.value is None:
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return all(self._exists(target) for target in targets)

    def _exists(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Tuple):
            return all(self._exists(each) for each in target.elts)
        return isinstance(target, ast.Attribute | ast.Subscript) or _name(target) in self._often


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
    return ""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (isinstance(node.value, str) or node.value is ...)


def _is_logged(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _name(node.func.value).lower() in _LOGS
    )


def _is_super(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and _name(node.func.value.func) == "super"
    )


def _is_arithmetic(node: ast.BinOp) -> bool:
    """Not two texts that are put together, and not a union of types."""
    sides = (node.left, node.right)
    if any(isinstance(each, ast.JoinedStr | ast.List | ast.Tuple) for each in sides):
        return False
    if any(isinstance(each, ast.Constant) and isinstance(each.value, str | bytes) for each in sides):
        return False
    return not (isinstance(node.op, ast.BitOr) and any(_is_type(each) for each in sides))


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant) and node.value is None:
        return True
    if isinstance(node, ast.Subscript):
        return _is_type(node.value)
    if isinstance(node, ast.BinOp):
        return _is_type(node.left) or _is_type(node.right)
    name = _name(node)
    return (name[:1].isupper() and not name.isupper()) or name in _TYPES

"""The house rules that no linter knows, read off the syntax tree: time and chance, sets, tasks, size, loose ends.

`untidy` returns what is wrong with one module. It follows names only within their function and their module: enough
to catch a slip, not to catch malice.
"""

import ast
import re
from collections.abc import Iterator

import msgspec

LINES_MAX = 400

_TIME_AND_CHANCE = ("multiprocessing", "random", "secrets", "threading", "time", "uuid")
_NOW = ("now", "utcnow", "today")
_THREADS = ("to_thread", "run_in_executor")
_SET_TYPES = ("set", "frozenset", "Set", "AbstractSet", "MutableSet")
_SET_METHODS = ("copy", "difference", "intersection", "symmetric_difference", "union")
_ORDER_KEEPERS = ("enumerate", "iter", "list", "map", "filter", "reversed", "tuple", "zip", "next", "join", "extend")
_ORDER_FORGETTERS = ("all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum")
_LOOSE_END = re.compile(r"\b(TODO|FIXME)\b")


class Finding(msgspec.Struct, frozen=True, order=True):
    module: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"


def untidy(source: str, module: str) -> list[Finding]:
    """Everything in this module that breaks a rule, by line."""
    tree = ast.parse(source)
    found = [*_size_and_docstring(source, tree), *_loose_ends(source, tree), *_time_and_chance(tree)]
    found += [*_dropped_tasks(tree), *_set_iterations(tree)]
    return sorted(Finding(module, line, what) for line, what in found)


Found = Iterator[tuple[int, str]]

# --- the module as a whole -------------------------------------------------------------------------------------------


def _size_and_docstring(source: str, tree: ast.Module) -> Found:
    lines = len(source.splitlines())
    if lines > LINES_MAX:
        yield LINES_MAX + 1, f"{lines} lines; a module has at most {LINES_MAX}"
    if not ast.get_docstring(tree):
        yield 1, "a module begins with a docstring"


def _loose_ends(source: str, tree: ast.Module) -> Found:
    for number, line in enumerate(source.splitlines(), start=1):
        if match := _LOOSE_END.search(line):
            yield number, f"{match.group()} is a loose end"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "NotImplementedError":
            yield node.lineno, "NotImplementedError: split the port instead"
        if isinstance(node, ast.Call) and _dotted(node.func) == "print":
            yield node.lineno, "print: tell an observer instead"


# --- time, chance, threads, environment ------------------------------------------------------------------------------


def _time_and_chance(tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in _TIME_AND_CHANCE:
                    yield node.lineno, f"import of {alias.name}: time and chance come from ports.clock"
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module.split(".")[0] in _TIME_AND_CHANCE:
                yield node.lineno, f"import from {node.module}: time and chance come from ports.clock"
            for alias in node.names:
                if node.module == "os" and alias.name in ("environ", "getenv"):
                    yield node.lineno, f"os.{alias.name}: only the settings read the environment"
                if node.module == "asyncio" and alias.name in _THREADS:
                    yield node.lineno, f"asyncio.{alias.name} starts a thread"
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node)


def _attribute(node: ast.Attribute) -> Found:
    owner = _dotted(node.value)
    if node.attr in _NOW and owner.split(".")[-1] in ("datetime", "date"):
        yield node.lineno, f"{owner}.{node.attr}: the time comes from ports.clock"
    if node.attr in ("environ", "getenv") and owner == "os":
        yield node.lineno, f"os.{node.attr}: only the settings read the environment"
    if node.attr in _THREADS:
        yield node.lineno, f"{node.attr} starts a thread"


# --- tasks -----------------------------------------------------------------------------------------------------------


def _dropped_tasks(tree: ast.Module) -> Found:
    groups = [
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if isinstance(item.context_expr, ast.Call)
        and _dotted(item.context_expr.func).endswith("TaskGroup")
        and isinstance(item.optional_vars, ast.Name)
    ]
    for node in ast.walk(tree):
        forgotten = isinstance(node, ast.Expr) or (
            isinstance(node, ast.Assign) and all(_dotted(target) == "_" for target in node.targets)
        )
        if not forgotten or not isinstance(node, ast.Expr | ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        owner, _, called = _dotted(node.value.func).rpartition(".")
        if called in ("create_task", "ensure_future") and owner not in groups:
            yield node.lineno, f"{called}: the code that starts a task awaits it or cancels it"


# --- sets ------------------------------------------------------------------------------------------------------------


def _set_iterations(tree: ast.Module) -> Found:
    """The order of a set depends on the process; a run that depends on it cannot be repeated."""
    scopes = list(_Scope(tree, None).all())
    for _ in range(3):  # a set may be handed from name to name
        for scope in scopes:
            scope.bind()
    for scope in scopes:
        for iterable in scope.iterated():
            if scope.is_set(iterable):
                yield iterable.lineno, f"the order of the set `{ast.unparse(iterable)}` is different in every process"


class _Scope:
    """A module, class or function: which of its names are sets, and what it iterates over.

    Attributes are shared by the module: `self._seen` is a set wherever one of that name was made.
    """

    def __init__(self, node: ast.AST, parent: "_Scope | None") -> None:
        self._parent = parent
        self._names: dict[str, bool] = {}
        self._attributes: dict[str, None] = {} if parent is None else parent._attributes
        self._nodes: list[ast.AST] = []
        self._children: list[_Scope] = []
        self._is_class = isinstance(node, ast.ClassDef)
        self._arguments(node)
        for child in ast.iter_child_nodes(node):
            self._collect(child)

    def all(self) -> "Iterator[_Scope]":
        yield self
        for child in self._children:
            yield from child.all()

    def bind(self) -> None:
        """Looks once at every assignment."""
        for node in self._nodes:
            match node:
                case ast.AnnAssign():
                    self._bind_to(node.target, _names_a_set(node.annotation) or self.is_set(node.value))
                case ast.Assign():
                    for target in node.targets:
                        self._bind_to(target, self.is_set(node.value))
                case ast.NamedExpr():
                    self._bind_to(node.target, self.is_set(node.value))

    def iterated(self) -> Iterator[ast.expr]:
        harmless = [
            generator
            for node in self._nodes
            if isinstance(node, ast.Call) and _dotted(node.func) in _ORDER_FORGETTERS
            for argument in node.args
            if isinstance(argument, ast.GeneratorExp | ast.ListComp)
            for generator in argument.generators
        ]
        for node in self._nodes:
            match node:
                case ast.For() | ast.AsyncFor():
                    yield node.iter
                case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
                    yield from (each.iter for each in node.generators if each not in harmless)
                case ast.Call() if _dotted(node.func).rpartition(".")[2] in _ORDER_KEEPERS:
                    yield from node.args
                case ast.Starred() | ast.YieldFrom():
                    yield node.value

    def is_set(self, node: ast.expr | None) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name():
                return self._name_is_set(node.id)
            case ast.Attribute():
                return node.attr in self._attributes
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.BitXor() | ast.Sub()):
                return self.is_set(node.left) or self.is_set(node.right)
            case ast.IfExp():
                return self.is_set(node.body) or self.is_set(node.orelse)
            case ast.NamedExpr():
                return self.is_set(node.value)
            case ast.Call(func=ast.Attribute() as method) if method.attr in _SET_METHODS:
                return self.is_set(method.value)
            case ast.Call():
                called = _dotted(node.func).rpartition(".")[2]
                return called in ("set", "frozenset") or self._name_is_set(f"{called}()")
        return False

    def _name_is_set(self, name: str) -> bool:
        if name in self._names:
            return self._names[name]
        return self._parent is not None and self._parent._name_is_set(name)

    def _arguments(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            spec = node.args
            for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
                self._names[each.arg] = _names_a_set(each.annotation)

    def _collect(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._global()[f"{node.name}()"] = _names_a_set(node.returns)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            self._children.append(_Scope(node, self))
            return
        self._nodes.append(node)
        for child in ast.iter_child_nodes(node):
            self._collect(child)

    def _global(self) -> dict[str, bool]:
        return self._names if self._parent is None else self._parent._global()

    def _bind_to(self, target: ast.expr, is_set: bool) -> None:
        if isinstance(target, ast.Name):
            self._names[target.id] = self._names.get(target.id, False) or is_set
        if is_set and (self._is_class or isinstance(target, ast.Attribute)):
            self._attributes[_dotted(target).rpartition(".")[2]] = None


def _names_a_set(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _names_a_set(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp):
        return _names_a_set(annotation.left) or _names_a_set(annotation.right)
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return annotation is not None and _dotted(annotation).rpartition(".")[2] in _SET_TYPES


def _dotted(node: ast.expr) -> str:
    """`a.b.c` as it is written; of anything more involved only the last part, or nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""

"""Where the source reads a limit at import time: from then on a changed limit has no effect there.

Import time is everything outside of a function body: module constants, class attributes, decorators, annotations, and
the defaults of arguments.
"""

import ast
from collections.abc import Iterator


def read_at_import(source: str) -> list[str]:
    """The names of the limits that this module reads as `limits.X` while it is imported, in the order of its lines."""
    return [node.attr for node in _import_time(ast.parse(source)) if _is_limit(node)]


def _import_time(node: ast.AST) -> Iterator[ast.Attribute]:
    for child in _children(node):
        if isinstance(child, ast.Attribute):
            yield child
        yield from _import_time(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """All but the body of a function, which runs when it is called."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from node.decorator_list
        yield node.args
    elif isinstance(node, ast.Lambda):
        yield node.args
    else:
        yield from ast.iter_child_nodes(node)


def _is_limit(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "limits" and node.attr.isupper()

"""What `make mutate` changes, and what it leaves alone."""

import pytest

from tools.mutate.operators import mutations


def changed(text: str) -> list[str]:
    """Every mutant of this text, whole."""
    return [each.applied(text) for each in mutations(text, "x.py")]


def in_a_function(statement: str) -> list[str]:
    """The mutants of one statement in a function."""
    head = "def f(a, b, self):\n    "
    return [each.removeprefix(head) for each in changed(head + statement)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", "a <= b"),
        ("a >= b", "a > b"),
        ("a == b", "a != b"),
        ("a is not b", "a is b"),
        ("a not  in b", "a in b"),
        ("a < b <= c", "a < b < c"),
        ("(a) < (b)", "(a) <= (b)"),
        ("a and b", "a or b"),
        ("a or b or c", "a or b and c"),
        ("not a", "(a)"),
        ("min(a, b)", "max(a, b)"),
        ("any(a)", "all(a)"),
        ("a + b", "a - b"),
        ("a // b", "a * b"),
        ("a & b", "a | b"),
        ("f(5)", "f(6)"),
        ("f(5)", "f(4)"),
        ("a[-4:]", "a[-5:]"),
        ("f(True)", "f(False)"),
        ("f(1.5)", "f(3.0)"),
        ("a if b else c", "a if not (b) else c"),
        ("[a for a in b if c]", "[a for a in b if not (c)]"),
        ("'ü' if a > b else c", "'ü' if a >= b else c"),
    ],
)
def test_an_expression_is_changed(before: str, after: str) -> None:
    assert f"x = {after}\n" in changed(f"x = {before}\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("g(a)", "pass"),
        ("await g(a)", "pass"),
        ("self.x = a", "pass"),
        ("a = g(b)", "pass"),  # an argument: there is a value before
        ("self.x += b", "pass"),
        ("self.x += b", "self.x -= b"),
        ("del self.x[a]", "pass"),
        ("raise a", "pass"),
        ("return g(a)", "return None"),
        ("if a: g(b)", "if not (a): g(b)"),
        ("while a: g(b)", "while not (a): g(b)"),
        ("for b in a: continue", "for b in a: break"),
        ("for b in a: break", "for b in a: continue"),
        ("match a:\n        case 1 if b: g(b)", "match a:\n        case 1 if not (b): g(b)"),
    ],
)
def test_a_statement_is_changed(before: str, after: str) -> None:
    assert after in in_a_function(before)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring with 1 and not 2."""',
        "def f(a: int | None = None) -> str | None:\n    'Says 1 < 2.'",
        "X = int | None",
        "Y = dict[str, Thing | Other]",
        "class A(Struct, frozen=True):\n    __slots__ = ('a', 'b')\n    a: Annotated[int, Meta(ge=1)]",
        "if TYPE_CHECKING:\n    from a import b\n    x = 1",
        "@parametrize(1)\ndef f(): ...",
        "def f(a):\n    assert a > 1, 'too little'",
        "def f(a):\n    logger.warning('lost %d', 3)",
        "class A:\n    def __init__(self, a):\n        super().__init__(a)\n        self.a = a",
        "def f(a):\n    b = g(a)",
        "x = f'{a + 1:>3}'",
        "x = 'a' + b",
    ],
)
def test_what_is_no_behaviour_is_left_alone(text: str) -> None:
    assert changed(text) == []


def test_a_mutant_says_where_it_is_and_what_it_changes() -> None:
    [mutant] = mutations("def f(a, b):\n    # ü\n    g(a,\n      b)\n", "folder/x.py")
    assert (mutant.place, mutant.what) == ("folder/x.py:3", "a call dropped")
    assert (mutant.source, mutant.becomes) == ("g(a,", "pass")
    assert mutant.applied("def f(a, b):\n    # ü\n    g(a,\n      b)\n") == "def f(a, b):\n    # ü\n    pass\n"
    assert "-    g(a,\n-      b)\n+    pass\n" in mutant.diff("def f(a, b):\n    # ü\n    g(a,\n      b)\n")


def test_changes_of_one_line_are_separate_mutants() -> None:
    assert [mutant.becomes for mutant in mutations("x = a + b + c\n", "x.py")] == ["x = a - b + c", "x = a + b - c"]


def test_a_change_that_is_no_python_is_recognised() -> None:
    text = "def f(a):\n    x = 1 if a else 2\n"
    assert all(mutant.is_python(text) for mutant in mutations(text, "x.py"))
    assert not mutations("x = a < b", "x.py")[0].is_python("x = (((((((")

import pytest

from dispatch.errors import ToolError
from dispatch.toolkit.edits import COMPARED_CHARACTERS, COMPARED_LINES, edited


def refusal(text: str, old: str, new: str) -> str:
    with pytest.raises(ToolError) as caught:
        edited(text, old, new, "a.py")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\nb\nc\n", "b", "x", ("a\nx\nc\n", 2)),
        ("a\nb\nc", "c", "x", ("a\nb\nx", 3)),
        ("a\nb\nc\n", "b\n", "", ("a\nc\n", 2)),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", ("x\r\ny\r\nz\r\nc\r\n", 1)),
        ("a\r\nb\r\nc", "b", "x\ny", ("a\r\nx\r\ny\r\nc", 2)),
        ("a\r\nb\r\n", "a\r\nb", "x\r\ny", ("x\r\ny\r\n", 1)),
        ("a\r\nb\nc\n", "b\nc", "x\ny", ("a\r\nx\ny\n", 2)),
        ("a\r\nb\nc\n", "a\nb", "x\ny", ("x\r\ny\nc\n", 1)),
        ("\ufeffa\n", "a", "b", ("\ufeffb\n", 1)),
        ("a.c abc", "a.c", r"\1", (r"\1 abc", 1)),
    ],
    ids=[
        "one line",
        "no final newline",
        "a whole line",
        "CRLF from plain newlines",
        "CRLF in the new text only",
        "CRLF as written",
        "mixed, where plain",
        "mixed, where CRLF",
        "byte order mark",
        "nothing is a pattern",
    ],
)
def test_one_passage_is_replaced(text: str, old: str, new: str, expected: tuple[str, int]) -> None:
    """The passage is replaced, its line is told, and line endings stay what they are."""
    assert expected == edited(text, old, new, "a.py")


@pytest.mark.parametrize(
    ("text", "old", "expected"),
    [
        ("x\nx\ny\nx\n", "x", "old occurs 3 times in 'a.py' (lines 1, 2, 4)"),
        ("aaa", "aa", "old occurs 2 times in 'a.py' (lines 1, 1)"),
        ("x\n" * 9, "x", "old occurs 9 times in 'a.py' (lines 1, 2, 3, 4, 5, …)"),
        ("x" * 500_000, "x" * 200_000, "old occurs more than 100 times"),
    ],
    ids=["three", "overlapping", "many", "hostile"],
)
def test_a_passage_that_is_not_unique_is_refused(text: str, old: str, expected: str) -> None:
    """The refusal counts the places and says to give more context."""
    text_of_it = refusal(text, old, "new")
    assert text_of_it.startswith(expected)
    assert text_of_it.endswith("add lines around it until it is unique")


@pytest.mark.parametrize(
    ("text", "old", "expected"),
    [
        (
            "def f():\n        return 1\n",
            "    return 1\n}",
            "; line 2 begins like it, so spaces or later lines differ: '        return 1'",
        ),
        ("x\nreturn total\n", "return totals", "; the closest line is 2: 'return total'"),
        ("x\n", "something else", "; read the file again and copy the text exactly"),
        (
            "x\n" * (COMPARED_LINES - 1) + "return total\n",
            "return totals",
            f"; the closest line is {COMPARED_LINES}: 'return total'",
        ),
        (
            "x\n" * COMPARED_LINES + "return total\n",
            "return totals",
            "; read the file again and copy the text exactly",
        ),
        (
            "a" * COMPARED_CHARACTERS + "b" * 90,
            "a" * COMPARED_CHARACTERS + "c" * 90,
            f"; the closest line is 1: '{'a' * COMPARED_CHARACTERS}",
        ),
        ("x\n" * 5000 + " y \nxy", "y\n}", "; line 5001 begins like it, so spaces or later lines"),
        ("", "\n", "; read the file again and copy the text exactly"),
    ],
    ids=[
        "indented otherwise",
        "close",
        "nothing like it",
        "last compared",
        "first not compared",
        "compared at its beginning",
        "far down",
        "empty",
    ],
)
def test_a_passage_that_is_missing_gets_a_hint(text: str, old: str, expected: str) -> None:
    """The refusal points at the line that was probably meant, if there is one."""
    assert refusal(text, old, "new").startswith(f"old does not occur in 'a.py'{expected}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("", "x", "old is empty"), ("a", "a", "old and new are the same")],
)
def test_an_edit_that_cannot_be_meant_is_refused(old: str, new: str, expected: str) -> None:
    """An empty passage and an edit that changes nothing are mistakes."""
    assert refusal("a", old, new).startswith(expected)

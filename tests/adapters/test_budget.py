from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch import Dispatcher, Image, ToolCall, tool
from dispatch.adapters import Budget, OpenAIChat
from dispatch.adapters.answers import Answer, answers, encoded
from dispatch.testing import run_in_virtual_time

from .samples import PNG, succeeded

LEAST_PER_RESULT = len("[…]".encode())


def told(values: list[Any], budget: Budget) -> list[Answer]:
    results = [succeeded(ToolCall(f"c{n}", "f", {}), n, value) for n, value in enumerate(values)]
    return answers(results, budget)


def taken(answer: Answer) -> int:
    """The bytes of all that is said: the text, and the images as base64."""
    return len(answer.text.encode()) + sum(len(encoded(image)) for image in answer.images)


def test_the_results_of_a_turn_share_its_budget(tmp_path: Path) -> None:
    """Q1: four results of 50 KB in 60 KB: a quarter each, cut with a marker, all of it kept."""
    wholes = [letter * 50_000 for letter in "abcd"]

    @tool(safe_parallel=True)
    async def dump(letter: str) -> str:
        return letter * 50_000

    async def main() -> tuple[list[Any], list[str]]:
        provider = OpenAIChat(budget=Budget(per_turn=60_000, folder=tmp_path))
        calls = [ToolCall(letter, "dump", {"letter": letter}) for letter in "abcd"]
        async with Dispatcher([dump]) as dispatcher:
            turn = await dispatcher.run(calls)
        return provider.reply(turn), [result.content() for result in turn]

    reply, kept = run_in_virtual_time(main())
    texts = [message["content"] for message in reply]
    assert [15_000] * 4 == [len(text.encode()) for text in texts]
    for letter, text in zip("abcd", texts, strict=True):
        head, marker, tail = text.split("\n")
        assert {letter} == set(head) == set(tail)
        assert len(head) - len(tail) in (0, 1), "head and tail are told alike"
        left_out, rest = marker.removeprefix("[… ").split(" of ", 1)
        assert 50_000 == len(head) + len(tail) + int(left_out.replace(",", ""))
        assert rest.startswith("50,000 bytes left out; the whole text is in ")
        path = Path(rest.split(" is in ")[1].removesuffix(" …]"))
        assert path.parent == tmp_path
        assert letter * 50_000 == path.read_text()
    assert wholes == kept
    assert 4 == len(list(tmp_path.iterdir())), "and nothing half written"


def test_short_results_stay_whole() -> None:
    """Q1: what is short takes nothing from itself, and leaves the rest to the others."""
    texts = ["tiny", "x" * 5_000, "y" * 300, "z" * 9_000]
    tiny, x, y, z = told(texts, Budget(per_turn=2_000))
    assert (["tiny"], ["y" * 300]) == (tiny.pieces, y.pieces)
    assert [848, 848] == [len(x.text.encode()), len(z.text.encode())]


def test_a_result_that_just_fits_is_not_touched() -> None:
    """The limit is the last size that is allowed."""
    (fits,) = told(["x" * 256], Budget(per_result=256))
    (over,) = told(["x" * 257], Budget(per_result=256))
    assert "x" * 256 == fits.text
    assert "of 257 bytes left out" in over.text
    assert 250 < len(over.text.encode()) <= 256


@pytest.mark.parametrize("character", ["x", "é", "€", "𝄞"], ids=["1", "2", "3", "4"])
@pytest.mark.parametrize("limit", range(1_000, 1_009))
def test_one_long_line_is_cut_by_bytes(character: str, limit: int) -> None:
    """Q2: a line of 200,000 characters is no exception, and no character is cut in two."""
    (answer,) = told([character * 200_000], Budget(per_result=limit))
    size = len(character.encode())
    assert limit - 2 * (size - 1) <= len(answer.text.encode()) <= limit
    head, marker, tail = answer.text.split("\n")
    assert {character} == set(head) == set(tail)
    assert f"of {200_000 * size:,} bytes left out" in marker


def test_without_room_for_a_marker_something_still_says_that_there_was_more() -> None:
    """Many results under a small limit are marked as cut, and none is empty."""
    texts = ["x" * 1_000] * 40
    assert {"[…]"} == {answer.text for answer in told(texts, Budget(per_turn=256))}


def test_images_that_do_not_fit_are_left_out_whole() -> None:
    """Half an image is none: a text says that there was one, and short texts stay."""
    large = Image(PNG.data + b"0" * 3_000)
    (answer,) = told([["Before", large, "after", PNG]], Budget(per_result=500))
    note = "[left out: image/png, 3,023 bytes, which is over the limit]"
    assert ["Before", note, "after", PNG] == answer.pieces
    (alone,) = told([large], Budget(per_result=500))
    assert [note] == alone.pieces


def test_equal_texts_are_kept_once(tmp_path: Path) -> None:
    """A file is named by what is in it, so that a reply made again writes and says the same."""
    budget = Budget(per_result=300, folder=tmp_path / "kept" / "here")
    first = told(["x" * 900, "x" * 900], budget)
    assert first == told(["x" * 900, "x" * 900], budget)
    assert first[0].text == first[1].text
    assert ["x" * 900] == [path.read_text() for path in (tmp_path / "kept" / "here").iterdir()]


def test_a_folder_that_cannot_be_written_costs_no_reply(tmp_path: Path) -> None:
    """The model learns that the whole is not to be had, and the turn goes on."""
    (tmp_path / "file").write_text("no folder")
    (answer,) = told(["x" * 900], Budget(per_result=400, folder=tmp_path / "file"))
    assert "left out; the whole text could not be kept: File exists" in answer.text
    assert 400 == len(answer.text.encode())


@pytest.mark.parametrize("name", ["per_result", "per_turn"])
@pytest.mark.parametrize("limit", [255, 0, -1])
def test_a_limit_that_leaves_nothing_is_refused(name: str, limit: int) -> None:
    """Below 256 bytes there would be hardly anything but markers."""
    with pytest.raises(
        ValueError, match=f"{name} must be at least 256 bytes, or None, not {limit}"
    ):
        Budget(**{name: limit})  # type: ignore[arg-type]


def test_no_limit_is_none() -> None:
    """With None for both, or for the budget, nothing is cut."""
    texts = ["x" * 1_000_000] * 3
    assert texts == [answer.text for answer in told(texts, Budget(per_result=None, per_turn=None))]
    results = [succeeded(ToolCall("a", "f", {}), n, text) for n, text in enumerate(texts)]
    assert texts == [message["content"] for message in OpenAIChat(budget=None).reply(results)]


texts = st.builds(
    lambda character, count: character * count,
    st.sampled_from(["x", "é", "€", "𝄞", "\n", "[…]"]),
    st.integers(0, 3_000),
)
images = st.builds(lambda size: Image(PNG.data + b"0" * size), st.integers(0, 3_000))
values = st.one_of(texts, images, st.lists(st.one_of(texts, images), max_size=9))


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(values, max_size=12),
    per_result=st.one_of(st.none(), st.integers(256, 5_000)),
    per_turn=st.one_of(st.none(), st.integers(256, 20_000)),
)
def test_all_results_together_stay_under_the_budget(
    values: list[Any], per_result: int | None, per_turn: int | None
) -> None:
    """Q1: whatever the sizes, no limit is passed, nobody goes empty, and what fits is whole."""
    budget = Budget(per_result=per_result, per_turn=per_turn)
    said, whole = told(values, budget), told(values, Budget(per_result=None, per_turn=None))
    sizes = [taken(answer) for answer in said]
    least = LEAST_PER_RESULT * len(values)
    assert per_turn is None or sum(sizes) <= max(per_turn, least)
    assert per_result is None or max(sizes, default=0) <= per_result
    assert all(answer.text for answer in said)
    fits = sum(map(taken, whole)) <= (per_turn or 10**9)
    if fits and all(taken(answer) <= (per_result or 10**9) for answer in whole):
        assert whole == said
    cut = [taken(after) for before, after in zip(whole, said, strict=True) if before != after]
    kept = [taken(after) for before, after in zip(whole, said, strict=True) if before == after]
    assert per_turn is None or not cut or max(kept, default=0) <= (per_result or per_turn)
    assert json.dumps([answer.text for answer in said])

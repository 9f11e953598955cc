"""Generated pages: the same seed gives the same page on every machine.

`python3 -m tests.sample FOLDER COUNT` writes COUNT large pages into FOLDER.
"""

import random
import sys
from pathlib import Path

WORDS = (
    "river stone light market window paper garden silver engine morning letter bridge colour"
    " thunder copper valley signal harbour winter lantern orchard compass feather station"
).split()
MARKS = ("**{}**", "*{}*", "`{}`", "[{}](https://example.org/{})", "{} & {}", "<{}>", '"{}"')


def words(dice: random.Random, count: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(count))


def sentence(dice: random.Random) -> str:
    parts = []
    for _ in range(dice.randint(2, 5)):
        parts.append(words(dice, dice.randint(2, 6)))
        word = dice.choice(WORDS)
        parts.append(dice.choice(MARKS).format(word, word))
    return " ".join(parts).capitalize() + "."


def section(dice: random.Random) -> list[str]:
    lines = ["#" * dice.randint(1, 4) + " " + words(dice, 2).capitalize(), ""]
    lines += [sentence(dice) for _ in range(dice.randint(1, 4))] + [""]
    lines += [f"- {words(dice, 3)}" for _ in range(dice.randint(1, 4))] + [""]
    lines += [f"{at}. {words(dice, 3)}" for at in range(1, dice.randint(2, 5))] + [""]
    lines += ["> " + sentence(dice), "", "```", "    # no heading: " + words(dice, 3), "```", ""]
    return lines


def page(seed: int, sections: int) -> str:
    """One page with that many sections."""
    dice = random.Random(seed)
    return "\n".join(line for _ in range(sections) for line in section(dice))


def write_pages(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        (folder / f"page{seed:02}.md").write_text(page(seed, SECTIONS), encoding="utf-8")
    print(f"{count} pages written to {folder}")


SECTIONS = 180

if __name__ == "__main__":
    write_pages(Path(sys.argv[1]), int(sys.argv[2]))

"""How long a page is."""

import re

from minimark.blocks import blocks

WORD = re.compile(r"\w+(?:['’-]\w+)*")
WORDS_A_MINUTE = 200


def word_count(text: str) -> int:
    """Words of the prose; code blocks are not counted."""
    return sum(
        len(WORD.findall(line))
        for block in blocks(text)
        if block.kind != "code"
        for line in block.lines
    )


def reading_minutes(text: str) -> int:
    """Minutes to read the page, rounded up; a page with any word takes at least one."""
    return round(word_count(text) / WORDS_A_MINUTE)

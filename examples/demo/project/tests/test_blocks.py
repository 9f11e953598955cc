import unittest

from minimark.blocks import Block, blocks
from tests.sample import page


class BlocksTest(unittest.TestCase):
    def test_headings_have_one_to_six_levels(self):
        self.assertEqual([Block("heading", ("Six",), level=6)], blocks("###### Six"))
        self.assertEqual([Block("paragraph", ("####### Seven",))], blocks("####### Seven"))

    def test_code_is_kept_as_it_is(self):
        self.assertEqual([Block("code", ("    deep", ""))], blocks("```\n    deep\n\n```"))

    def test_code_that_is_never_closed_goes_on_to_the_end(self):
        self.assertEqual([Block("code", ("one", "two"))], blocks("```\none\ntwo"))

    def test_bullets_and_numbers_are_different_lists(self):
        self.assertEqual(
            [Block("bullets", ("a", "b")), Block("numbers", ("c",))], blocks("- a\n* b\n1. c")
        )

    def test_a_quote(self):
        self.assertEqual([Block("quote", ("said", "so"))], blocks("> said\n> so"))

    def test_every_line_of_a_large_page_is_in_exactly_one_block(self):
        for seed in range(PAGES):
            text = page(seed, 120)
            written = sum(1 for line in text.splitlines() if line and line != "```")
            kept = sum(len(block.lines) for block in blocks(text))
            self.assertEqual(written, kept)


PAGES = 6

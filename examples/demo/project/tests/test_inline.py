import html
import random
import re
import unittest

from minimark.inline import inline
from tests.sample import sentence


class InlineTest(unittest.TestCase):
    def test_emphasis(self):
        self.assertEqual("an <em>old</em> tree", inline("an *old* tree"))

    def test_strong(self):
        self.assertEqual("a <strong>tall</strong> tree", inline("a **tall** tree"))

    def test_stars_inside_code_stay(self):
        self.assertEqual("<code>a * b * c</code>", inline("`a * b * c`"))

    def test_a_link(self):
        self.assertEqual('<a href="https://x.org">x</a>', inline("[x](https://x.org)"))

    def test_a_script_is_no_link(self):
        self.assertEqual("click", inline("[click](javascript:alert)"))

    def test_no_word_is_lost_and_every_tag_is_closed(self):
        dice = random.Random(3)
        for _ in range(SENTENCES):
            text = sentence(dice)
            out = inline(text)
            tags = re.findall(r"</?(\w+)", out)
            self.assertTrue(all(tags.count(tag) % 2 == 0 for tag in set(tags)), out)
            shown = html.unescape(re.sub(r"<[^>]*>", "", out))
            plain = re.sub(r"\(https:[^)]*\)", "", text)
            self.assertEqual(re.findall(r"\w+", plain), re.findall(r"\w+", shown))


SENTENCES = 2_200

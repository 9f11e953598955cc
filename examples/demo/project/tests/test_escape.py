import html
import random
import unittest

from minimark.escape import escape


class EscapeTest(unittest.TestCase):
    def test_each_character_with_a_meaning(self):
        self.assertEqual("&lt;a&gt; &amp; &quot;b&quot;", escape('<a> & "b"'))

    def test_an_entity_in_the_text_is_shown_as_written(self):
        self.assertEqual("&amp;lt;", escape("&lt;"))

    def test_a_browser_reads_back_what_was_written(self):
        dice = random.Random(1)
        for _ in range(ROUNDS):
            text = "".join(dice.choices('ab<>&"; lt', k=40))
            self.assertEqual(text, html.unescape(escape(text)))


ROUNDS = 5_000

import unittest

from minimark.stats import reading_minutes, word_count
from tests.sample import page


class StatsTest(unittest.TestCase):
    def test_words_of_headings_and_prose_count(self):
        self.assertEqual(5, word_count("# A title\n\nIt's three words"))

    def test_code_does_not_count(self):
        self.assertEqual(1, word_count("word\n\n```\nnot these\n```"))

    def test_minutes_are_rounded_up(self):
        self.assertEqual(0, reading_minutes(""))
        self.assertEqual(1, reading_minutes("one"))
        self.assertEqual(1, reading_minutes("word " * 200))
        self.assertEqual(2, reading_minutes("word " * 201))

    def test_two_pages_have_the_words_of_both(self):
        for seed in range(PAGES):
            one, two = page(seed, 60), page(seed + 100, 60)
            both = word_count(f"{one}\n\n{two}")
            self.assertEqual(word_count(one) + word_count(two), both)


PAGES = 5

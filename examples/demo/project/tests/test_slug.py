import random
import unittest

from minimark.slug import Slugs, slugify
from tests.sample import words


class SlugTest(unittest.TestCase):
    def test_words_are_joined_by_hyphens(self):
        self.assertEqual("a-small-step", slugify("A small step"))

    def test_marks_at_the_ends_leave_nothing_behind(self):
        self.assertEqual("what-now", slugify("¿What now?"))

    def test_accents_are_dropped(self):
        self.assertEqual("cafe", slugify("Café"))

    def test_a_title_without_letters_still_has_an_id(self):
        self.assertEqual("section", slugify("!!!"))

    def test_equal_titles_get_different_ids(self):
        slugs = Slugs()
        self.assertEqual(["intro", "intro-2", "intro-3"], [slugs.of("Intro") for _ in range(3)])

    def test_ids_stay_unique_whatever_the_titles_are(self):
        dice = random.Random(2)
        titles = [f"{words(dice, 2)} {dice.choice(['', '2', '3'])}" for _ in range(TITLES)]
        slugs = Slugs()
        self.assertEqual(TITLES, len({slugs.of(title) for title in titles}))


TITLES = 10_000

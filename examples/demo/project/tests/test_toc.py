import re
import unittest

from minimark import to_html
from minimark.toc import contents
from tests.sample import page


class ContentsTest(unittest.TestCase):
    def test_levels_are_nested_lists(self):
        self.assertEqual(
            '<ul><li><a href="#a">A</a><ul><li><a href="#b">B</a></li></ul></li>'
            '<li><a href="#c">C</a></li></ul>',
            contents("# A\n## B\n# C"),
        )

    def test_a_page_without_headings_has_none(self):
        self.assertEqual("", contents("Only prose."))

    def test_every_link_leads_to_a_heading_in_the_same_order(self):
        for seed in range(PAGES):
            text = page(seed, 100)
            links = re.findall(r'href="#([^"]*)"', contents(text))
            self.assertEqual(re.findall(r'<h\d id="([^"]*)"', to_html(text)), links)

    def test_lists_are_closed(self):
        out = contents(page(7, 200))
        self.assertEqual(out.count("<ul>"), out.count("</ul>"))
        self.assertEqual(out.count("<li>"), out.count("</li>"))


PAGES = 4

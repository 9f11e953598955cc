import re
import unittest

from minimark import to_html
from tests.sample import page


class RenderTest(unittest.TestCase):
    def test_a_small_page(self):
        text = "# Hello *you*\n\nOne\ntwo.\n\n- a\n- b\n\n1. c\n\n> quoted\n\n```\nx < y\n```"
        self.assertEqual(
            '<h1 id="hello-you">Hello <em>you</em></h1>\n'
            "<p>One two.</p>\n"
            "<ul><li>a</li><li>b</li></ul>\n"
            "<ol><li>c</li></ol>\n"
            "<blockquote>quoted</blockquote>\n"
            "<pre><code>x &lt; y</code></pre>",
            to_html(text),
        )

    def test_every_heading_of_a_large_page_has_an_id_of_its_own(self):
        for seed in range(PAGES):
            ids = re.findall(r'<h\d id="([^"]*)"', to_html(page(seed, 150)))
            self.assertEqual(150, len(ids))
            self.assertEqual(150, len(set(ids)))

    def test_nothing_of_the_page_becomes_a_tag(self):
        allowed = {"h1", "h2", "h3", "h4", "p", "ul", "ol", "li", "blockquote", "pre", "code"}
        allowed |= {"a", "em", "strong"}
        self.assertEqual(set(), set(re.findall(r"<(\w+)", to_html(page(9, 200)))) - allowed)


PAGES = 3

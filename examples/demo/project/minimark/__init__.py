"""A small Markdown library: one page of text in, one piece of HTML out."""

from minimark.render import to_html

__all__ = ["to_html"]

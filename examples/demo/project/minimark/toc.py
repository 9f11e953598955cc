"""The table of contents of a page."""


def contents(text: str) -> str:
    """Nested lists of links, one item a heading; empty for a page without headings."""
    raise NotImplementedError("TODO: the table of contents")

"""The table of contents of a page."""


def contents(text: str) -> str:
    """Nested lists of links, one item a heading; empty for a page without headings."""
    # Left out on purpose: to write it is the task in the recorded conversation of the demo.
    raise NotImplementedError("TODO: the table of contents")

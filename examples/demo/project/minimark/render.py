"""Blocks to HTML."""

from minimark.blocks import Block, blocks
from minimark.escape import escape
from minimark.inline import inline
from minimark.slug import Slugs


def to_html(text: str) -> str:
    """A whole page as HTML, one block a line."""
    slugs = Slugs()
    return "\n".join(_html(block, slugs) for block in blocks(text))


def _html(block: Block, slugs: Slugs) -> str:
    if block.kind == "heading":
        title = block.lines[0]
        return f'<h{block.level} id="{slugs.of(title)}">{inline(title)}</h{block.level}>'
    if block.kind == "code":
        return f"<pre><code>{escape(chr(10).join(block.lines))}</code></pre>"
    if block.kind == "bullets":
        items = "".join(f"<li>{inline(line)}</li>" for line in block.lines)
        return f"<ul>{items}</ul>"
    body = inline(" ".join(block.lines))
    return f"<blockquote>{body}</blockquote>" if block.kind == "quote" else f"<p>{body}</p>"

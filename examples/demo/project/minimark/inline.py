"""What stands inside a paragraph: code, strong, emphasis, links."""

import re

from minimark.escape import escape

SPAN = re.compile(
    r"\*(?P<em>\S(?:.*?\S)?)\*"
    r"|\*\*(?P<strong>\S(?:.*?\S)?)\*\*"
    r"|`(?P<code>[^`]+)`"
    r"|\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)"
)


def inline(text: str) -> str:
    """`text` as HTML, with its spans marked up and everything else escaped."""
    parts, end = [], 0
    for match in SPAN.finditer(text):
        parts.append(escape(text[end : match.start()]))
        parts.append(_span(match))
        end = match.end()
    parts.append(escape(text[end:]))
    return "".join(parts)


def _span(match: re.Match[str]) -> str:
    if match["code"] is not None:
        return f"<code>{escape(match['code'])}</code>"
    if match["strong"] is not None:
        return f"<strong>{inline(match['strong'])}</strong>"
    if match["em"] is not None:
        return f"<em>{inline(match['em'])}</em>"
    return _link(match["label"], match["target"])


def _link(label: str, target: str) -> str:
    return f'<a href="{escape(target)}">{inline(label)}</a>'

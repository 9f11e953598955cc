"""Ids for headings."""

import re
import unicodedata


def slugify(title: str) -> str:
    """The words of `title` in lower case, joined by hyphens."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()) or "section"


class Slugs:
    """Gives every heading of one document an id that no other heading of it has."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def of(self, title: str) -> str:
        slug = slugify(title)
        count = self._count[slug] = self._count.get(slug, 0) + 1
        return slug if count == 1 else f"{slug}-{count}"

"""Text made safe for HTML."""

ENTITIES = (("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("&", "&amp;"))


def escape(text: str) -> str:
    """`text` with every character that HTML gives a meaning replaced by its entity."""
    for character, entity in ENTITIES:
        text = text.replace(character, entity)
    return text

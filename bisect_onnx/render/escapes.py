"""Text that came from a model, made safe to show: every character that cannot be seen becomes an escape."""

import unicodedata

__all__ = ["safe"]

# Controls, invisible format characters (among them the ones that reverse a line), lone surrogates, and the
# line and paragraph separators: none of them can be seen, and most change how the rest is shown.
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def safe(text: str) -> str:
    r"""``text`` with every character that cannot be seen spelled as an escape (``\n``, ``\x1b``, ``\u202e``)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(character) for character in text)


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in HIDDEN_CATEGORIES:
        return character
    # Surrogates cannot be encoded; unicode_escape knows them all the same.
    return character.encode("unicode_escape").decode("ascii")

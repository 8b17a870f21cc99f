"""The names that a Python file defines, found without running it."""

import ast
from pathlib import Path

__all__ = ["top_level_names"]


def top_level_names(path: Path) -> tuple[str, ...]:
    """Public functions and classes in file order; empty when the file does not parse."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    )

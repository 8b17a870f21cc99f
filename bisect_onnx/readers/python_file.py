"""The names in a Python file that may make a model, found without running it."""

import ast
from pathlib import Path

__all__ = ["top_level_names"]


def top_level_names(path: Path) -> tuple[str, ...]:
    """Public functions that need no argument, then classes named as modules are; empty if it does not parse."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not _required(node)]
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and _extends_module(node)]
    return tuple(name for name in (*functions, *classes) if not name.startswith("_"))


def _required(node: ast.FunctionDef) -> bool:
    arguments = node.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional > 0 or any(default is None for default in arguments.kw_defaults)


def _extends_module(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2].endswith(("Module", "Model", "Sequential")) for base in node.bases)

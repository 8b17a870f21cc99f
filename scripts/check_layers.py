#!/usr/bin/env python3
"""Check which part of the package may import which, and a few house rules that need no type checker.

    python scripts/check_layers.py [PACKAGE]

Reads the syntax trees only, nothing is imported, so the check also works where torch is missing. Imports
under TYPE_CHECKING and inside functions count like all others. Exit status: 0 clean, 1 violations
(each as ``file:line: rule: message``), 2 when there is nothing to check.
"""

import ast
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

PACKAGE: Final = "bisect_onnx"

# The diagram in ARCHITECTURE.md as data: a layer sees itself and what stands here. The package's own
# __init__.py ("") offers the public names, __main__.py starts the command line.
SEES: Final[Mapping[str, frozenset[str]]] = {
    "errors": frozenset(),
    "core": frozenset({"errors"}),
    "readers": frozenset({"core", "errors"}),
    "runtimes": frozenset({"core", "errors", "readers"}),
    "align": frozenset({"core", "errors"}),
    "rules": frozenset({"core", "errors"}),
    "render": frozenset({"core", "errors"}),
    "pipeline": frozenset({"core", "errors", "readers", "runtimes", "align", "rules"}),
    "tui": frozenset({"core", "errors", "pipeline", "render"}),
    "cli": frozenset({"core", "errors", "pipeline", "render", "tui"}),
    "": frozenset({"core", "errors", "pipeline"}),
    "__main__": frozenset({"cli"}),
}

# Foreign packages that the layers at the bottom may use besides the standard library.
FOREIGN_IN: Final[Mapping[str, frozenset[str]]] = {
    "errors": frozenset(),
    "core": frozenset({"ml_dtypes", "numpy"}),
}

# Places outside runtimes and readers that must import torch, each with the reason.
TORCH_EXCEPTIONS: Final[Mapping[str, str]] = {}

NAMELESS_MODULES: Final = frozenset({"common", "helper", "helpers", "misc", "util", "utils"})
BROADCASTING: Final = frozenset({"allclose", "isclose"})


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Violation:
    """One place that breaks one rule."""

    file: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.message}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """One source file: its place below the package and its syntax tree."""

    path: Path  # relative to the package's folder
    shown: str  # the path as violations name it
    tree: ast.Module

    @property
    def layer(self) -> str:
        first = self.path.parts[0].removesuffix(".py")
        return "" if first == "__init__" else first

    def violation(self, line: int, *, rule: str, message: str) -> Violation:
        return Violation(file=self.shown, line=line, rule=rule, message=message)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A module that some line imports, by its absolute dotted name."""

    name: str
    line: int

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def check_package(folder: Path) -> list[Violation]:
    """Every violation below ``folder``, sorted by file and line."""
    found: list[Violation] = []
    for file in sorted(folder.rglob("*.py")):
        shown = str(Path(folder.name) / file.relative_to(folder))
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError) as error:
            line = getattr(error, "lineno", None) or 1
            found.append(Violation(file=shown, line=line, rule="syntax", message=f"cannot be parsed: {error}"))
            continue
        found.extend(check_module(Module(path=file.relative_to(folder), shown=shown, tree=tree)))
    return sorted(found)


def check_module(module: Module) -> Iterator[Violation]:
    """Every violation of one file."""
    yield from check_names(module)
    if module.layer not in SEES:
        known = ", ".join(sorted(layer for layer in SEES if not layer.startswith("_") and layer))
        yield module.violation(1, rule="layer", message=f"{module.layer!r} is not a layer; the layers are {known}")
        return
    for imported in imports(module):
        if imported.top == PACKAGE:
            yield from check_layer(module, imported)
        else:
            yield from check_foreign(module, imported)
    yield from check_calls(module)


def check_names(module: Module) -> Iterator[Violation]:
    for part in module.path.with_suffix("").parts:
        if part in NAMELESS_MODULES:
            yield module.violation(1, rule="name", message=f"a module called {part!r} says nothing about what is in it")


def check_layer(module: Module, imported: Imported) -> Iterator[Violation]:
    target = imported.name.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]
    if target in SEES[module.layer] | {module.layer, "__version__"}:
        return
    importer = module.layer or "the package's __init__"
    if target == "cli":
        message = f"nothing imports cli, {importer} does"
    elif target in SEES and target:
        sees = ", ".join(sorted(SEES[module.layer])) or "nothing of the package"
        message = f"{importer} must not import {target}; it sees {sees}"
    else:
        message = f"{importer} must not import {imported.name}; name the module that defines what is wanted"
    yield module.violation(imported.line, rule="layer", message=message)


def check_foreign(module: Module, imported: Imported) -> Iterator[Violation]:
    allowed = FOREIGN_IN.get(module.layer)
    if allowed is not None and imported.top not in allowed and imported.top not in sys.stdlib_module_names:
        also = "".join(f", {name}" for name in sorted(allowed))
        message = f"{module.layer} must not import {imported.top}; it sees the standard library{also}"
        yield module.violation(imported.line, rule="foreign", message=message)
    elif imported.top == "torch" and not may_import_torch(module.path):
        message = "torch is imported in readers/torch_*.py and runtimes/torch_*.py only"
        yield module.violation(imported.line, rule="torch", message=message)
    elif imported.top == "onnxruntime" and module.layer != "runtimes":
        message = "onnxruntime is imported in runtimes/ only"
        yield module.violation(imported.line, rule="onnxruntime", message=message)


def may_import_torch(path: Path) -> bool:
    in_adapter = path.parts[0] in {"readers", "runtimes"} and path.name.startswith("torch_")
    return in_adapter or path.as_posix() in TORCH_EXCEPTIONS


def imports(module: Module) -> Iterator[Imported]:
    """Every module that a file imports, wherever the statement stands, relative names made absolute."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Imported(name=alias.name, line=node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = absolute_base(node, module.path)
            if base == PACKAGE:  # `from bisect_onnx import core` imports bisect_onnx.core
                for alias in node.names:
                    yield Imported(name=f"{base}.{alias.name}", line=node.lineno)
            else:
                yield Imported(name=base, line=node.lineno)
        elif isinstance(node, ast.Call) and called_name(node) in {"import_module", "__import__"} and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Imported(name=first.value, line=node.lineno)


def absolute_base(node: ast.ImportFrom, path: Path) -> str:
    if node.level == 0:
        return node.module or ""
    parents = path.parent.parts
    kept = parents[: len(parents) - (node.level - 1)]
    return ".".join((PACKAGE, *kept, *(() if node.module is None else (node.module,))))


def called_name(call: ast.Call) -> str:
    """The last part of what is called: ``import_module`` for ``importlib.import_module(...)``."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def check_calls(module: Module) -> Iterator[Violation]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Name(id="print")) | ast.Attribute(value=ast.Name(id="builtins"), attr="print"):
                message = "print writes to stdout behind the renderer's back; write to the stream you were given"
                yield module.violation(node.lineno, rule="print", message=message)
            case ast.Attribute(value=ast.Name(id="math"), attr="isclose"):
                continue  # of two numbers: nothing to broadcast
            case ast.Attribute(attr=name) if name in BROADCASTING:
                yield broadcasts(module, node.lineno, name=name)
            case ast.ImportFrom(module=source, names=names) if source != "math":
                for alias in names:
                    if alias.name in BROADCASTING:
                        yield broadcasts(module, node.lineno, name=alias.name)


def broadcasts(module: Module, line: int, *, name: str) -> Violation:
    message = f"{name} broadcasts, so (3, 1) can equal (1, 3); compare with core.compare"
    return module.violation(line, rule="allclose", message=message)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1] / PACKAGE
    if not any(folder.rglob("*.py")):
        print(f"check_layers: no Python files below {folder}; give the package's folder", file=sys.stderr)
        return 2
    violations = check_package(folder)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

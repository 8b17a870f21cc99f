"""Where an ONNX node came from: what the two PyTorch exporters write into metadata, doc strings and names."""

import ast
import dataclasses
import functools
import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx

from bisect_onnx.core.graph import Source

__all__ = ["Origin", "origin_of", "scope_of_name"]

PREFIX = "pkg.torch.onnx."
FX_NODE = re.compile(r"^%(?P<name>[\w.]+)\s*:.*?call_\w+\[target=(?P<target>[\w.<>]+)\]", re.DOTALL)
FRAME = re.compile(
    r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*(?:\n(?P<code>(?!\s*File ")[^\n]*))?', re.MULTILINE
)
OLD_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): \S+\s*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The torch side of a node; each field is None when the file does not tell."""

    module: str | None = None
    module_class: str | None = None
    torch_op: str | None = None
    fx_name: str | None = None
    source: Source | None = None


def origin_of(node: onnx.NodeProto) -> Origin:
    """Collect what ``node`` says about its torch origin: metadata first, TorchScript scope names second."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    scopes, classes = _scopes(metadata)
    name, target = _fx_node(metadata.get(PREFIX + "fx_node", ""))
    if scopes:
        # The last scope is the torch node itself, the one before it the innermost module.
        return Origin(
            module=scopes[-2] if len(scopes) > 1 else "",
            module_class=classes[-2] if len(classes) > 1 else None,
            torch_op=target or (classes[-1] if classes else None),
            fx_name=name or scopes[-1],
            source=_source(metadata, node.doc_string),
        )
    return Origin(
        module=next(filter(_is_known, (scope_of_name(text, op_type=node.op_type) for text in _names(node))), None),
        torch_op=target,
        fx_name=name,
        source=_source(metadata, node.doc_string),
    )


def _is_known(scope: str | None) -> bool:
    return scope is not None


def _names(node: onnx.NodeProto) -> Iterable[str]:
    yield node.name
    yield from node.output


def _scopes(metadata: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Module paths and classes from the outermost to the torch node."""
    scopes = _literal_list(metadata.get(PREFIX + "name_scopes", ""))
    classes = _literal_list(metadata.get(PREFIX + "class_hierarchy", ""))
    if scopes:
        return scopes, classes
    # Only the display form, e.g. ": M/blocks.0: B/blocks.0.act: SiLU/silu: aten.silu.default".
    parts = [part.partition(": ") for part in metadata.get("namespace", "").split("/") if part]
    if not parts or not all(separator for _, separator, _ in parts):
        return [], []
    return [name for name, _, _ in parts], [kind for _, _, kind in parts]


def _literal_list(text: str) -> list[str]:
    if not text:
        return []
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return []
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def _fx_node(text: str) -> tuple[str | None, str | None]:
    """Name and target of a printed FX node: ("silu_1", "aten.silu.default")."""
    found = FX_NODE.match(text)
    if found is None:
        return None, None
    return found["name"], found["target"].removeprefix("torch.ops.")


def _source(metadata: Mapping[str, str], doc_string: str) -> Source | None:
    """The innermost frame of user code in a stack trace (innermost last), or in an old doc string (first)."""
    frames = list(FRAME.finditer(metadata.get(PREFIX + "stack_trace", "")))
    for frame in reversed(frames):
        if not _is_torch(frame["file"]):
            code = (frame["code"] or "").strip()
            return Source(file=_absolute(frame["file"]), line=int(frame["line"]), code=code or None)
    for frame in OLD_FRAME.finditer(doc_string):
        if not _is_torch(frame["file"]):
            return Source(file=_absolute(frame["file"]), line=int(frame["line"]))
    return None


def _absolute(file: str) -> str:
    return str(Path(file).absolute())


def _is_torch(file: str) -> bool:
    """Whether a frame lies in torch, in this package, or in generated code."""
    if file.startswith("<"):
        return True
    posix = file.replace("\\", "/")
    # The file may come from another machine, so its own idea of where torch lives counts too.
    return "-packages/torch/" in posix or any(posix.startswith(root) for root in _own_roots())


@functools.cache
def _own_roots() -> tuple[str, ...]:
    roots: list[str] = []
    for package in ("torch", "bisect_onnx"):
        spec = importlib.util.find_spec(package)  # finds, does not import
        folders = spec.submodule_search_locations if spec is not None else None
        roots.extend(str(folder).replace("\\", "/").rstrip("/") + "/" for folder in folders or ())
    return tuple(roots)


def scope_of_name(name: str, *, op_type: str) -> str | None:
    """Module path in a TorchScript name such as ``/encoder/layer.0/act/Mul_1_output_0``.

    Args:
        name: Name of a node or of one of its outputs.
        op_type: The node's operator, which such a name ends with.

    Returns:
        "encoder.layer.0.act"; "" for the root module; None when the name is not of this form. A second call of
        one module carries the exporter's "_1" behind a scope: "encoder.shared_1".
    """
    if not name.startswith("/"):
        return None
    *scopes, last = name[1:].split("/")
    if not re.fullmatch(re.escape(op_type) + r"(_\d+)?(_output_\d+)?", last):
        return None
    path: list[str] = []
    for scope in scopes:
        # A child of a called Sequential repeats its parent: /features/features.0.
        if path and scope.startswith(path[-1] + "."):
            path[-1] = scope
        else:
            path.append(scope)
    return ".".join(path)

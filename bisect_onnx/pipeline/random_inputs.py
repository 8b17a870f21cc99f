"""Seeded random inputs drawn from the signature of an ONNX file: legal ones, so that both sides run.

Unknown axes get a length of 1 for a batch, 64 for height and width, and 8 for anything else.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from bisect_onnx.core.feeds import Array, InputSignature
from bisect_onnx.core.graph import Graph, Node
from bisect_onnx.errors import EmptyFeedError, RandomFeedError, ShapeOptionError

__all__ = ["draw_inputs", "index_limit"]

BATCH_LENGTH = 1  # what examples of exports have; a batch of 2 is a test of its own
IMAGE_LENGTH = 64  # survives five halvings, which is what most convolutional nets do
OTHER_LENGTH = 8

# Legal for token types, flags and classes alike when nothing in the graph says how large an index may be.
DEFAULT_INTEGER_LIMIT = 2

# Ops whose output holds the very elements of their first input (of the first two data inputs for Where).
CARRIERS = {
    "Cast": (0,), "Identity": (0,), "Reshape": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Flatten": (0,),
    "Transpose": (0,), "Expand": (0,), "Tile": (0,), "Slice": (0,), "Split": (0,), "Gather": (0,),
    "Clip": (0,), "Where": (1, 2), "Concat": (0, 1, 2, 3),
}  # fmt: skip
INDEXERS = frozenset({"Gather", "GatherElements", "ScatterElements", "GatherND", "ScatterND"})


def draw_inputs(
    signature: Sequence[InputSignature],
    *,
    graph: Graph,
    seed: int,
    shapes: Mapping[str, tuple[int, ...]],
    meanings: Mapping[str, str],
) -> dict[str, Array]:
    """One array per input: normal floats, integers that are legal indices, masks of ones, positions in order.

    Args:
        signature: What to draw.
        graph: Tells which inputs are indices, and into what.
        seed: Equal seeds draw equal arrays.
        shapes: Shapes the user wants, by input.
        meanings: The reference's name for each input, which tells masks and positions when the file's does not.

    Raises:
        ShapeOptionError: ``shapes`` names no input or contradicts the signature.
        RandomFeedError: An input whose type or rank leaves nothing to draw from.
    """
    lengths = _symbol_lengths(signature, shapes=shapes)
    generator = np.random.default_rng(seed)
    drawn: dict[str, Array] = {}
    for declared in signature:
        shape = shapes.get(declared.name) or _shape(declared, lengths=lengths)
        words = f"{declared.name} {meanings.get(declared.name, '')}".lower()
        drawn[declared.name] = _draw(declared, shape=shape, graph=graph, words=words, rng=generator)
    return drawn


def _symbol_lengths(signature: Sequence[InputSignature], *, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Lengths that ``--shape`` gives to named axes; checks the option on the way."""
    by_name = {declared.name: declared for declared in signature}
    lengths: dict[str, int] = {}
    for name, shape in shapes.items():
        declared = by_name.get(name)
        if declared is None:
            raise ShapeOptionError(
                name=name,
                expected=f"one of the inputs {', '.join(repr(known) for known in by_name)}",
                got=repr(name),
                next_step="name an input of the ONNX file",
            )
        if 0 in shape:
            raise EmptyFeedError(where="--shape", name=name, shape=shape)
        if declared.dims is None:
            continue
        wanted = [lengths.get(dim, dim) if isinstance(dim, str) else dim for dim in declared.dims]
        agrees = len(wanted) == len(shape) and all(
            _fits(dim, length, lengths=lengths) for dim, length in zip(declared.dims, shape, strict=True)
        )
        if not agrees:
            raise ShapeOptionError(
                name=name,
                expected=str(InputSignature(name=name, dtype=declared.dtype, dims=tuple(wanted))),
                got=",".join(map(str, shape)),
                next_step="keep the rank and the fixed lengths; one symbol has one length in all inputs",
            )
    return lengths


def _fits(dim: int | str | None, length: int, *, lengths: dict[str, int]) -> bool:
    """Whether an axis may have the length; the first length of a symbol is the one it has everywhere."""
    if isinstance(dim, str):
        return lengths.setdefault(dim, length) == length
    return dim is None or dim == length


def _shape(declared: InputSignature, *, lengths: dict[str, int]) -> tuple[int, ...]:
    if declared.dims is None:
        raise RandomFeedError(
            where="graph inputs of the candidate",
            name=declared.name,
            got=str(declared),
            next_step=f"add --shape {declared.name}=1,3,224,224 with its real shape, or give --inputs",
        )
    shape = []
    for axis, dim in enumerate(declared.dims):
        if isinstance(dim, int):
            shape.append(dim)
        elif dim is None:
            shape.append(_default_length(declared, axis=axis))
        else:
            shape.append(lengths.setdefault(dim, _default_length(declared, axis=axis)))
    return tuple(shape)


def _default_length(declared: InputSignature, *, axis: int) -> int:
    assert declared.dims is not None
    symbol = declared.dims[axis]
    rank = len(declared.dims)
    if (axis == 0 and rank > 1) or (isinstance(symbol, str) and "batch" in symbol.lower()):
        return BATCH_LENGTH
    if rank == 4 and axis >= 2 and isinstance(declared.dims[1], int) and (declared.dtype or "").startswith("float"):
        return IMAGE_LENGTH
    return OTHER_LENGTH


def _draw(
    declared: InputSignature, *, shape: tuple[int, ...], graph: Graph, words: str, rng: np.random.Generator
) -> Array:
    if declared.dtype in {None, "string"}:
        raise RandomFeedError(
            where="graph inputs of the candidate",
            name=declared.name,
            got="a string tensor" if declared.dtype else "a sequence, map or optional",
            next_step="give --inputs",
        )
    dtype = np.dtype(declared.dtype)
    if (
        dtype.kind == "b"
        or "attention_mask" in words
        or "attn_mask" in words
        or ("mask" in words and dtype.kind in "iu")
    ):
        return np.ones(shape, dtype=dtype)
    if dtype.kind in "iu":
        return _draw_integers(words, shape=shape, dtype=dtype, limit=index_limit(graph, declared.name), rng=rng)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    try:
        ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call] # ml_dtypes leaves it untyped
    except ValueError:  # int4 and its kin, which numpy shows as opaque
        return rng.integers(0, DEFAULT_INTEGER_LIMIT, shape).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def _draw_integers(
    words: str, *, shape: tuple[int, ...], dtype: np.dtype[Any], limit: int | None, rng: np.random.Generator
) -> Array:
    if "position" in words and shape:
        positions = np.broadcast_to(np.arange(shape[-1]), shape)
        return (positions % limit if limit else positions).astype(dtype)
    if limit is None and dtype.itemsize == 1:  # pixels, or quantised values: all of their range is legal
        info = np.iinfo(dtype)
        return rng.integers(info.min, int(info.max) + 1, shape).astype(dtype)
    top = min(limit or DEFAULT_INTEGER_LIMIT, int(np.iinfo(dtype).max) + 1)
    return rng.integers(0, top, shape).astype(dtype)


def index_limit(graph: Graph, value: str) -> int | None:
    """Length of the shortest axis that elements of ``value`` index; None when they index nothing."""
    functions = {function.name: function for function in graph.functions}
    return min(_limits(graph, {value}, functions=functions, depth=0), default=None)


def _limits(graph: Graph, reached: set[str], *, functions: Mapping[str, Graph], depth: int) -> Iterator[int]:
    """Axis lengths found on the way down from ``reached``, which grows by the values that carry the elements."""
    for node in graph.nodes:
        if node.op_type in INDEXERS and len(node.inputs) > 1 and node.inputs[1] in reached:
            yield _indexed_length(graph, node)
        for body in node.subgraphs:
            yield from _limits(body, reached, functions=functions, depth=depth)
        function = functions.get(f"{node.domain}:{node.op_type}")
        if function is not None and depth < 16:  # a function may not call itself, but a broken file might
            inside = {
                inner for inner, outer in zip(function.inputs, node.inputs, strict=False) if outer and outer in reached
            }
            yield from _limits(function, inside, functions=functions, depth=depth + 1)
            reached.update(
                outer for inner, outer in zip(function.outputs, node.outputs, strict=False) if inner in inside
            )
        elif any(
            position < len(node.inputs) and node.inputs[position] in reached
            for position in CARRIERS.get(node.op_type, ())
        ):
            reached.update(node.real_outputs())


def _indexed_length(graph: Graph, node: Node) -> int:
    """Length of the axis that ``node`` indexes; 1 when it is not known, because index 0 is always legal."""
    table = graph.values.get(node.inputs[0])
    if table is None or not table.shape:
        return 1
    if node.op_type in {"GatherND", "ScatterND"}:
        known = [length for length in table.shape if length is not None]
        return min(known) if len(known) == len(table.shape) else 1
    axis = node.attributes.get("axis", 0)
    assert isinstance(axis, int)
    return (table.shape[axis] if -len(table.shape) <= axis < len(table.shape) else None) or 1

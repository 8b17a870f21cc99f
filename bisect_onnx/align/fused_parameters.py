"""Initializers that are several parameters one after the other, as a fused query, key and value, or a part of one."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bisect_onnx.align.by_parameter import relative_distance
from bisect_onnx.core.compare import Array

__all__ = ["Fused", "fused", "part_of"]

# Query and key, or query, key and value; gates of recurrent cells are stored as one parameter.
MOST_FUSED = 3
MOST_PARTS = 4
# Unrelated weights of one scale lie a relative distance of about sqrt(2) apart; see `by_parameter.ParameterMatch`.
PLAUSIBLE = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fused:
    """What an initializer is made of, and what the parameters have there, in the initializer's layout."""

    name: str  # "query.weight + key.weight", or "in_proj_weight[2 of 3]"
    transform: str  # "concat", "split", and "transpose" after it
    array: Array


def fused(array: Array, parameters: Mapping[str, Array]) -> Fused | None:
    """The parameters of equal shape and kind, next to each other in the state dict, that ``array`` is made of.

    Args:
        array: An initializer of one or two axes; its first axis, or its second when it is transposed, is the fused one.
        parameters: In the order of the state dict.
    """
    best: tuple[float, Fused] | None = None
    for count in range(2, MOST_FUSED + 1):
        for names in _neighbours(parameters, count):
            for transform, chunks in _chunks(array, count):
                parts = [parameters[name] for name in names]
                if chunks[0].shape != parts[0].shape:
                    continue
                errors = (relative_distance(chunk, part) for chunk, part in zip(chunks, parts, strict=True))
                farthest = _farthest(errors, limit=PLAUSIBLE if best is None else best[0])
                if farthest is not None:
                    whole = np.concatenate(parts)
                    told = Fused(
                        name=" + ".join(names),
                        transform="concat" if transform == "identity" else "concat, transpose",
                        array=whole if transform == "identity" else np.ascontiguousarray(whole.T),
                    )
                    best = (farthest, told)
    return None if best is None else best[1]


def part_of(array: Array, parameters: Mapping[str, Array]) -> Fused | None:
    """The parameter that ``array`` is an equal part of, along its first axis."""
    best: tuple[float, Fused] | None = None
    for name, whole in parameters.items():
        count = whole.size // array.size if array.size else 0
        if not 2 <= count <= MOST_PARTS or count * array.size != whole.size or whole.shape[0] % count:
            continue
        for place, part in enumerate(np.split(whole, count)):
            for transform, ours in (("split", array), ("split, transpose", array.T)):
                if ours.shape != part.shape or (transform != "split" and array.ndim != 2):
                    continue
                error = relative_distance(ours, part)
                if error <= (PLAUSIBLE if best is None else best[0]):
                    form = part if transform == "split" else np.ascontiguousarray(part.T)
                    told = Fused(name=f"{name}[{place + 1} of {count}]", transform=transform, array=form)
                    best = (error, told)
    return None if best is None else best[1]


def _neighbours(parameters: Mapping[str, Array], count: int) -> Iterator[Sequence[str]]:
    """Names of parameters of one kind and shape that follow each other among those of their kind."""
    kinds: dict[str, list[str]] = {}
    for name in parameters:
        kinds.setdefault(name.rpartition(".")[2], []).append(name)
    for names in kinds.values():
        for start in range(len(names) - count + 1):
            window = names[start : start + count]
            if len({parameters[name].shape for name in window}) == 1:
                yield window


def _chunks(array: Array, count: int) -> Iterator[tuple[str, list[Array]]]:
    for transform, turned in (("identity", array), ("transpose", array.T)):
        if turned.ndim in (1, 2) and turned.shape[0] % count == 0 and (transform == "identity" or array.ndim == 2):
            yield transform, np.split(turned, count)


def _farthest(errors: Iterator[float], *, limit: float) -> float | None:
    """The largest, or None as soon as one is not below ``limit``."""
    largest = 0.0
    for error in errors:
        if not error <= limit:
            return None
        largest = max(largest, error)
    return largest

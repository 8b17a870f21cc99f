"""Repeats recorded calls in float64, so that the rounding of the original run can be told from its errors."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from bisect_onnx.core.graph import ValueKind
from bisect_onnx.runtimes.torch_arrays import Array, holds_array, to_numpy
from bisect_onnx.runtimes.torch_exact_cache import ExactCache
from bisect_onnx.runtimes.torch_rounding import rounded_at_random
from bisect_onnx.runtimes.torch_slice import Slice, slice_tape
from bisect_onnx.runtimes.torch_structure import tensors_in
from bisect_onnx.runtimes.torch_substitutes import NotRepeatableError, substitute_for
from bisect_onnx.runtimes.torch_tape import Call, Rebuild, Recorded, Ref, Tape, Unit, map_leaves

__all__ = ["ExactRun"]

_log = logging.getLogger(__name__)

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}

# Results that are elements of the arguments, or integers, as they are: no rounding happens, so none is imitated.
_EXACT_OPERATORS = frozenset({
    "abs", "amax", "amin", "arange", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "clone", "constant_pad_nd",
    "copy", "cummax", "cummin", "detach", "diagonal", "embedding", "expand", "fill", "flip", "floor", "full",
    "full_like", "gather", "hardtanh", "index", "index_fill", "index_put", "index_select", "lift_fresh",
    "masked_fill", "masked_scatter", "masked_select", "max", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "maximum", "min", "minimum", "neg", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "pixel_shuffle",
    "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "relu", "repeat",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll", "round", "scalar_tensor", "scatter",
    "select_scatter", "sign", "slice_scatter", "sort", "stack", "threshold", "topk", "tril", "triu", "trunc",
    "unsafe_split", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "where", "zero", "zeros",
    "zeros_like",
})  # fmt: skip

# Memory that was never written has no exact value; what it held is taken as recorded.
_UNWRITTEN = frozenset(
    {"aten.empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty", "aten.new_empty_strided"}
)


class ExactRun:
    """One repetition, of which any part may be asked for, in any order; what it computed serves the next part.

    Integers and booleans (indices, masks, arg-max) stay as recorded, so no choice flips.
    """

    def __init__(
        self,
        tape: Tape,
        recorded: Callable[[Sequence[str]], Mapping[str, torch.Tensor]],
        *,
        seed: int | None,
        max_bytes: int | None,
    ) -> None:
        """Prepare a repetition.

        Args:
            tape: The recorded run.
            recorded: Gives the values of that run by name.
            seed: None for exact results; otherwise each rounds at random, reproducibly.
            max_bytes: For what is kept between calls of `values`; None: as much as `ExactCache` takes.
        """
        self._tape = tape
        self._recorded = recorded
        self._seed = seed
        self._cache = ExactCache(max_bytes=max_bytes)

    def values(self, fetch: Sequence[str], *, given: Sequence[str] | None) -> dict[str, Array]:
        """Float64 arrays of the wanted values; one whose calls cannot be repeated is absent."""
        part = slice_tape(self._tape, fetch=fetch, given=frozenset(given or ()), is_leaf=_is_leaf)
        origins = part.origins(frozenset(given or ()))
        wanted = dict.fromkeys(fetch)
        units, cached = self._left_to_do(part, wanted, origins=origins)
        results = {name: cached[name] for name in wanted if name in cached}
        read = {name for unit in units for name in unit.reads}
        taken = [name for name in part.leaves if name in read or (name in wanted and name not in part.made)]
        recorded = self._recorded([name for name in taken if self._tape.values[name].plain])
        results.update((name, _widen(recorded[name])) for name in recorded if name in wanted and name not in part.made)
        known = {name: tensor for name, tensor in cached.items() if name not in taken} | dict(recorded)
        results.update(self._repeated(units, known, origins=origins, wanted=frozenset(wanted)))
        return {
            name: to_numpy(_as_float64(results[name]))
            for name in wanted
            if name in results and holds_array(results[name])
        }

    def _left_to_do(
        self, part: Slice, wanted: Iterable[str], *, origins: Mapping[str, frozenset[str]]
    ) -> tuple[list[Unit], dict[str, torch.Tensor]]:
        """The steps whose results are not kept, and the kept results that these and the caller read."""
        cached: dict[str, torch.Tensor] = {}
        units: dict[tuple[int, int], Unit] = {}
        leaves = frozenset(part.leaves)
        pending = [name for name in wanted if name in part.made]
        while pending:
            name = pending.pop()
            if name in cached:
                continue
            origin = (name, origins[name])
            if origin in self._cache:
                tensor = self._cache[origin]
                if tensor is not None:
                    cached[name] = tensor
                continue
            unit = self._tape.makers[name]
            if unit.order not in units:
                units[unit.order] = unit
                pending.extend(read for read in unit.reads if read not in leaves)
        return [units[order] for order in sorted(units)], cached

    def _repeated(
        self,
        units: Sequence[Unit],
        known: dict[str, torch.Tensor],
        *,
        origins: Mapping[str, frozenset[str]],
        wanted: frozenset[str],
    ) -> dict[str, torch.Tensor]:
        """Run the steps; ``known`` grows and shrinks with what they still need. Returns the wanted results."""
        results: dict[str, torch.Tensor] = {}
        uses = Counter(name for unit in units for name in unit.reads)
        with _float64_world():
            for unit in units:
                made = self._repeat(unit, known)
                for name in unit.makes:
                    if name in origins:
                        self._cache.keep((name, origins[name]), made.get(name))
                for name, tensor in made.items():
                    if name in wanted and name in origins:
                        results[name] = tensor
                    if name in uses:
                        known.setdefault(name, tensor)  # a recorded value, or the same one, stands
                _release(unit, known, uses=uses)
        return results

    def _repeat(self, unit: Unit, known: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The values that a step makes; none when it cannot be repeated or lacks an argument."""
        if any(name not in known for name in unit.reads):
            return {}
        wide = {name: _widen(known[name]) for name in unit.reads}
        try:
            if unit.rebuild is not None:
                return {unit.rebuild.name: rebuilt(unit.rebuild, wide, values=self._tape.values)}
            made = repeat_call(unit.call, wide, values=self._tape.values, dtypes=_WIDE)
        except (RuntimeError, TypeError, NotImplementedError, IndexError, NotRepeatableError) as error:
            # Kernels without a float64 form say so in one of these ways; the caller sees the value missing.
            _log.debug("%s cannot be repeated in float64: %s", unit.call.name, error)
            return {}
        return {name: self._rounded(name, _widen(tensor), call=unit.call) for name, tensor in made.items()}

    def _rounded(self, name: str, tensor: torch.Tensor, *, call: Call) -> torch.Tensor:
        """The value as independent rounding in its original precision might have left it."""
        dtype = self._tape.values[name].dtype
        if self._seed is None or tensor.dtype is not torch.float64 or not dtype.is_floating_point:
            return tensor
        if call.plan.is_view or _is_exact(call, dtype, values=self._tape.values):
            return tensor
        return rounded_at_random(tensor, dtype, seed=(self._seed, call.index, call.outputs.index(name)))


def _is_leaf(value: Recorded, unit: Unit) -> bool:
    """What is taken as recorded: integers and booleans, views of parameters, random numbers, unwritten memory."""
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return True
    if value.kind is ValueKind.PARAMETER:
        return True
    return unit.rebuild is None and (unit.call.plan.is_random or unit.call.plan.op_type in _UNWRITTEN)


def _is_exact(call: Call, dtype: torch.dtype, *, values: Mapping[str, Recorded]) -> bool:
    base = call.plan.op_type.partition(".")[2].removesuffix("_")
    if base in ("_to_copy", "convert_element_type"):
        sources = [values[name].dtype for name in call.reads()]
        return all(source.is_floating_point and torch.finfo(source).eps >= torch.finfo(dtype).eps for source in sources)
    return base in _EXACT_OPERATORS


def repeat_call(
    call: Call,
    known: Mapping[str, torch.Tensor],
    *,
    values: Mapping[str, Recorded],
    dtypes: Mapping[torch.dtype, torch.dtype],
) -> dict[str, torch.Tensor]:
    """Run the call on other tensors.

    Args:
        call: What it writes to is copied first, so ``known`` stays as it is.
        known: A tensor for each value that the call reads.
        values: The recorded run's values.
        dtypes: Replacements for dtypes among the arguments.
    """
    substitute = substitute_for(call, known, values=values)
    if substitute is not None:
        return dict(zip(call.outputs, substitute, strict=True))
    args, kwargs, written = _bind(call, known, dtypes=dtypes)
    results = [*tensors_in(call.func(*args, **kwargs)), *written]
    made = list({id(tensor): tensor for tensor in results}.values())
    return dict(zip(call.outputs, made, strict=True))


def _bind(
    call: Call, known: Mapping[str, torch.Tensor], *, dtypes: Mapping[torch.dtype, torch.dtype]
) -> tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]:
    """Arguments with tensors in place and dtypes replaced, and the copies that the call will write to."""
    written: list[torch.Tensor] = []

    def fill(tree: Any, *, copied: bool) -> Any:
        def tensor_of(ref: Ref) -> torch.Tensor:
            if not copied:
                return known[ref.name]
            written.append(known[ref.name].clone())
            return written[-1]

        return map_leaves(tree, {Ref: tensor_of, torch.dtype: lambda dtype: dtypes.get(dtype, dtype)})

    changed = {argument.name for argument in call.plan.written_by(call.args, call.kwargs)}
    names = [argument.name for argument in call.plan.arguments]
    args = tuple(fill(value, copied=names[position] in changed) for position, value in enumerate(call.args))
    kwargs = {name: fill(value, copied=name in changed) for name, value in call.kwargs.items()}
    return args, kwargs, written


def rebuilt(rebuild: Rebuild, known: Mapping[str, torch.Tensor], *, values: Mapping[str, Recorded]) -> torch.Tensor:
    """Lay the written elements over the old ones, by their places in the storage they shared."""
    pieces = (rebuild.old, *rebuild.written)
    if len({values[name].dtype for name in pieces}) > 1:
        raise NotRepeatableError("the storage was written through another dtype")
    geometries = [values[name].geometry for name in pieces]
    size = max(geometry.extent()[1] for geometry in geometries)
    buffer = torch.zeros(size, dtype=known[rebuild.old].dtype, device=known[rebuild.old].device)
    for name, geometry in zip(pieces, geometries, strict=True):
        geometry.lay(known[name], buffer=buffer)
    return geometries[0].of(buffer).clone()


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(_WIDE.get(tensor.dtype, tensor.dtype))


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_complex() else tensor.to(torch.float64)


def _release(unit: Unit, known: dict[str, torch.Tensor], *, uses: Counter[str]) -> None:
    """Forget the values that no later step reads."""
    for name in unit.reads:
        uses[name] -= 1
        if not uses[name]:
            known.pop(name, None)


@contextmanager
def _float64_world() -> Iterator[None]:
    """No gradients, no autocast, and float64 where a kernel would choose the default dtype (integer division)."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        torch.set_default_dtype(default)

"""Repeats a few recorded calls with each operator taken apart, to see the values that it implies inside."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bisect_onnx.core.compare import ErrorStats, compare_arrays
from bisect_onnx.core.graph import ValueKind
from bisect_onnx.runtimes.torch_arrays import view_as_numpy
from bisect_onnx.runtimes.torch_decompositions import decompositions_of, functional_form
from bisect_onnx.runtimes.torch_exact import rebuilt, repeat_call
from bisect_onnx.runtimes.torch_recorder import Recorder
from bisect_onnx.runtimes.torch_slice import slice_tape
from bisect_onnx.runtimes.torch_structure import tensors_in
from bisect_onnx.runtimes.torch_substitutes import NotRepeatableError
from bisect_onnx.runtimes.torch_tape import Call, Place, Recorded, Ref, Tape, Unit, map_leaves
from bisect_onnx.runtimes.torch_vault import Vault

__all__ = ["open_up"]

_log = logging.getLogger(__name__)

# A decomposition adds a few roundings; one that is this far off (in rms of the result) computes something else.
FAITHFUL = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 0.05, torch.bfloat16: 0.3}

# How torch and its decompositions say that they cannot do something.
_FAILURES = (
    RuntimeError,
    TypeError,
    ValueError,
    NotImplementedError,
    IndexError,
    AttributeError,
    AssertionError,
    NotRepeatableError,
)


def open_up(
    tape: Tape,
    recorded: Callable[[Sequence[str]], Mapping[str, torch.Tensor]],
    *,
    fetch: Sequence[str],
    given: Sequence[str],
) -> tuple[Tape, Vault]:
    """Record the calls from ``given`` to ``fetch`` again, opened up.

    Args:
        tape: The recorded run.
        recorded: Gives the values of that run by name.
        fetch: Values at the end; they keep their names, and so do the calls' results on the way.
        given: Values at the beginning, taken as recorded.

    Returns:
        The new recording. Whatever does not depend on an input is taken as recorded too.
    """
    part = slice_tape(tape, fetch=fetch, given=frozenset(given), is_leaf=_is_boundary)
    vault = Vault(max_bytes=None)
    opening = _Opening(vault, needed=frozenset(fetch) | part.uses().keys())
    boundary = [name for name in dict.fromkeys((*given, *part.leaves)) if tape.values[name].plain]
    known: dict[str, torch.Tensor] = {}
    for name, tensor in recorded(boundary).items():
        known[name] = tensor.detach()
        opening.register(known[name], name, kind=tape.values[name].kind)
    with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        for unit in part.units:
            if all(name in known for name in unit.reads):
                made = opening.repeat(unit, known, values=tape.values)
                known.update((name, tensor) for name, tensor in made.items() if name not in known)
    opening.tape.inputs = tuple(name for name in given if name in known)
    opening.tape.outputs = tuple(name for name in fetch if name in opening.tape.values)
    return opening.tape, vault


def _is_boundary(value: Recorded, unit: Unit) -> bool:
    random = unit.rebuild is None and unit.call.plan.is_random
    return random or value.kind is not ValueKind.ACTIVATION


class _Opening(Recorder):  # type: ignore[no-untyped-call]  # torch's __init_subclass__ has no types
    """Takes apart each operator that reaches it, recursively."""

    def __init__(self, vault: Vault, *, needed: frozenset[str]) -> None:
        super().__init__(vault=vault, place=lambda: self._where, name_constant=lambda _: None)
        self._where = Place(label="", module=None, source=None)
        self._needed = needed
        self._active: set[Any] = set()
        self._whole = False

    def repeat(
        self, unit: Unit, known: Mapping[str, torch.Tensor], *, values: Mapping[str, Recorded]
    ) -> dict[str, torch.Tensor]:
        """Run one step opened up; its needed results get the names that they have on the outer tape."""
        call = unit.call
        self._where = Place(label=call.name, module=call.module, source=call.source)
        mark = self._mark()
        if unit.rebuild is not None:
            with self:
                made = {unit.rebuild.name: rebuilt(unit.rebuild, known, values=values)}
        else:
            made = self._opened(call, known, values=values)
        return {name: self._name(tensor, name, mark=mark) for name, tensor in made.items()}

    def _opened(
        self, call: Call, known: Mapping[str, torch.Tensor], *, values: Mapping[str, Recorded]
    ) -> dict[str, torch.Tensor]:
        """The call taken apart if that computes the same, otherwise the call itself."""
        mark = self._mark()
        try:
            expected = self._needed_of(repeat_call(call, known, values=values, dtypes={}))
            made = self._taken_apart(call, known)
            if _agree(made, expected):
                return made
            _log.debug("%s taken apart computes something else", call.name)
        except _FAILURES as error:
            _log.debug("%s cannot be taken apart: %s", call.name, error)
        self._roll_back(mark)
        self._whole = True
        try:
            with self:
                return self._needed_of(repeat_call(call, known, values=values, dtypes={}))
        except _FAILURES as error:
            _log.debug("%s cannot be repeated: %s", call.name, error)
            self._roll_back(mark)
            return {}
        finally:
            self._whole = False

    def _taken_apart(self, call: Call, known: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        func = functional_form(call.func)
        if func is call.func and call.plan.written_by(call.args, call.kwargs):
            raise NotRepeatableError("it writes, and no operator returns what it would write")
        fill = functools.partial(map_leaves, changes={Ref: lambda ref: known[ref.name]})
        with self:
            result = func(*fill(call.args), **{name: fill(value) for name, value in call.kwargs.items()})
        results = list(tensors_in(result))
        return self._needed_of(dict(zip(call.outputs, results, strict=True)))

    def _expand(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._whole or func in self._active:
            return NotImplemented
        mark = self._mark()
        for decomposition in decompositions_of(func):
            self._active.add(func)
            try:
                with self:
                    result = decomposition(*args, **kwargs)
            except _FAILURES as error:
                _log.debug("a decomposition of %s fails: %s", func, error)
                result = NotImplemented
            finally:
                self._active.discard(func)
            if result is not NotImplemented:
                return result
            self._roll_back(mark)
        return NotImplemented

    def _needed_of(self, made: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in made.items() if name in self._needed}

    def _name(self, tensor: torch.Tensor, name: str, *, mark: tuple[int, int]) -> torch.Tensor:
        """Give a result its outer name; through an alias when it is no new value of this step."""
        fresh = {made for call in self.tape.calls[mark[0] :] for made in call.outputs} - self._needed
        if self.read(tensor) not in fresh:
            self._whole = True
            with self:
                tensor = torch.ops.aten.alias.default(tensor)
            self._whole = False
        self.rename(tensor, name, since=mark[0])
        return tensor

    def _mark(self) -> tuple[int, int]:
        return len(self.tape.calls), len(self.tape.values)

    def _roll_back(self, mark: tuple[int, int]) -> None:
        """Take back what was recorded since the mark."""
        del self.tape.calls[mark[0] :]
        for name in list(self.tape.values)[mark[1] :]:
            del self.tape.values[name]
            self.vault.forget(name)


def _agree(made: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> bool:
    if made.keys() != expected.keys():
        return False
    for name, tensor in expected.items():
        if tensor.dtype is not made[name].dtype:
            return False
        error = compare_arrays(view_as_numpy(tensor), view_as_numpy(made[name]))
        if (
            not isinstance(error, ErrorStats)
            or error.scaled is None
            or not error.scaled <= FAITHFUL.get(tensor.dtype, 0)
        ):
            return False
    return True

"""The dispatch mode that writes every ATen call of a run onto a tape."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bisect_onnx.core.graph import ValueKind
from bisect_onnx.runtimes.torch_arrays import holds_array
from bisect_onnx.runtimes.torch_schema import SchemaPlan, plan_of
from bisect_onnx.runtimes.torch_storage import Holder, Storages, geometry_of
from bisect_onnx.runtimes.torch_structure import tensors_in
from bisect_onnx.runtimes.torch_tape import Call, Place, Rebuild, Recorded, Ref, Tape, map_leaves
from bisect_onnx.runtimes.torch_vault import Vault

__all__ = ["Recorder", "WriteWatcher"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What was called, with the names of values in the place of tensors."""

    func: Any
    plan: SchemaPlan
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__ has no types
    """Records calls while active; one recorder serves one run."""

    # Control-flow operators reach the handler, which runs them with their bodies recorded.
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps the handler so that its compiler leaves it alone.

        The wrapper imports the whole compiler at the first call, which takes seconds; a recording is never
        compiled.
        """
        return False

    def __init__(
        self, *, vault: Vault, place: Callable[[], Place], name_constant: Callable[[torch.Tensor], str | None]
    ) -> None:
        """Prepare a recording.

        Args:
            vault: Takes the elements.
            place: Says where in the user's model a call happens, when asked during the call.
            name_constant: The name of a tensor that no call made; None for a literal.
        """
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without types
        self.tape = Tape()
        self.vault = vault
        self._place = place
        self._name_constant = name_constant
        self._storages = Storages()
        self._plans: dict[Any, SchemaPlan] = {}
        self._constants = 0
        self._paused = False
        self._recent: list[torch.Tensor] = []
        self._before_write: list[Callable[[torch.Tensor], None]] = []

    def register(self, tensor: torch.Tensor, name: str, *, kind: ValueKind) -> None:
        """Introduce a value that exists before the run."""
        self.vault.mark_lasting(self._storages.log(tensor).key)
        self._add_value(name, tensor, kind)
        if self._storages.holder(tensor) is None:  # a tied parameter is known by its first name
            self._storages.hold(tensor, name)

    def watch_writes(self, listener: Callable[[torch.Tensor], None]) -> None:
        """Call ``listener`` with each tensor that is about to be written."""
        self._before_write.append(listener)

    def read(self, tensor: torch.Tensor) -> str:
        """The name of the value that ``tensor`` holds now."""
        holder = self._storages.holder(tensor)
        if holder is None:
            holder = self._adopt(tensor)
        if holder.epoch != holder.log.epoch:
            self._refresh(holder, tensor)
        return holder.name

    def read_all(self, tree: object) -> tuple[str, ...]:
        """The names of all tensors in nested containers; what that takes is not recorded."""
        paused, self._paused = self._paused, True
        try:
            return tuple(self.read(tensor) for tensor in tensors_in(tree))
        finally:
            self._paused = paused

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if self._paused:
            return func(*args, **keywords)
        if func is torch.ops.aten._convolution.default:  # what traced programs call; the rest are cuDNN's switches
            func, args = torch.ops.aten.convolution.default, args[:9]
        if not isinstance(func, torch._ops.OpOverload):
            return self._run_higher_order(func, args, keywords)
        expanded = self._expand(func, args, keywords)
        if expanded is not NotImplemented:
            return expanded
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = plan_of(func)
        refs = functools.partial(map_leaves, changes={torch.Tensor: lambda tensor: Ref(self.read(tensor))})
        request = Request(
            func=func, plan=plan, args=refs(args), kwargs={name: refs(value) for name, value in keywords.items()}
        )
        written = plan.written_tensors(args, keywords)
        for tensor in written:
            self._announce_write(tensor)
        result = func(*args, **keywords)
        results = list(tensors_in(result))
        if results or written:
            self._record(request, results=results, written=written)
        return result

    def _expand(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run something recorded in the place of a call; NotImplemented records the call itself."""
        return NotImplemented

    def _record(self, request: Request, *, results: list[torch.Tensor], written: list[torch.Tensor]) -> Call:
        """Put a finished call on the tape, with a value for each tensor that it returned or wrote."""
        made = list({id(tensor): tensor for tensor in (*results, *written)}.values())
        # torch calls `detach` on what a factory returns when somebody else holds it too. Holding the latest
        # results always, not only when they are kept, makes equal runs record equal calls.
        self._recent = made
        index = len(self.tape.calls)
        place = self._place()
        name = f"{place.label}/{request.plan.op_type}#{index}" if place.label else f"{request.plan.op_type}#{index}"
        names = (name,) if len(made) == 1 else tuple(f"{name}:{k}" for k in range(len(made)))
        by_identity = dict(zip(map(id, made), names, strict=True))
        call = Call(
            index=index,
            name=name,
            func=request.func,
            plan=request.plan,
            args=request.args,
            kwargs=request.kwargs,
            outputs=names,
            module=place.module,
            source=place.source,
        )
        kind = self._kind_of(call)
        self.tape.calls.append(call)
        if not request.plan.moves_only_metadata:
            for tensor in written:
                self._storages.log_write(tensor, call=call, name=by_identity[id(tensor)])
        for tensor, value in zip(made, names, strict=True):
            self._add_value(value, tensor, kind)
            self._storages.hold(tensor, value)
        return call

    def rename(self, tensor: torch.Tensor, name: str, *, since: int) -> None:
        """Give the value that ``tensor`` holds, made by call number ``since`` or a later one, another name."""
        holder = self._storages.holder(tensor)
        assert holder is not None
        old, holder.name = holder.name, name
        self.tape.values[name] = dataclasses.replace(self.tape.values.pop(old), name=name)
        self.vault.rename(old, name)
        self._storages.rename(holder.log, old, name)
        change: dict[type, Callable[[Any], Any]] = {Ref: lambda ref: Ref(name) if ref.name == old else ref}
        for call in self.tape.calls[since:]:
            call.outputs = tuple(name if made == old else made for made in call.outputs)
            call.args = map_leaves(call.args, change)
            call.kwargs = {key: map_leaves(value, change) for key, value in call.kwargs.items()}

    def _kind_of(self, call: Call) -> ValueKind:
        kinds = {self.tape.values[name].kind for name in call.reads()}
        if call.plan.shape_only and not call.plan.written:
            return ValueKind.CONSTANT
        if kinds & {ValueKind.INPUT, ValueKind.ACTIVATION}:
            return ValueKind.ACTIVATION
        if call.plan.is_view and kinds == {ValueKind.PARAMETER}:
            return ValueKind.PARAMETER
        return ValueKind.CONSTANT

    def _announce_write(self, tensor: torch.Tensor) -> None:
        self.vault.before_write(self._storages.log(tensor).key, geometry_of(tensor))
        for listener in self._before_write:
            listener(tensor)

    def _refresh(self, holder: Holder, tensor: torch.Tensor) -> None:
        """Give the tensor a new value when a write through another tensor changed it since it was last read."""
        missed = holder.missed_writes()
        holder.epoch = holder.log.epoch
        if not missed:
            return
        last = missed[-1]
        if last.geometry == holder.geometry and last.dtype is holder.dtype:
            holder.name = last.name  # another tensor object for exactly the written elements
            return
        name = f"{last.call.name}~{len(last.call.rebuilds)}"
        sources = (holder.name, *(write.name for write in missed))
        last.call.rebuilds.append(Rebuild(name=name, old=holder.name, written=tuple(write.name for write in missed)))
        kinds = {self.tape.values[source].kind for source in sources}
        active = bool(kinds & {ValueKind.INPUT, ValueKind.ACTIVATION})
        self._add_value(name, tensor, ValueKind.ACTIVATION if active else ValueKind.CONSTANT)
        holder.name = name

    def _adopt(self, tensor: torch.Tensor) -> Holder:
        """Name a tensor that no recorded call made: an alias, an attribute of a module, a literal."""
        log = self._storages.log(tensor)
        geometry = geometry_of(tensor)
        relatives = [holder for holder in self._storages.living(log) if holder.dtype is tensor.dtype]
        for relative in relatives:
            if relative.geometry == geometry:
                alias = self._storages.hold(tensor, relative.name)
                alias.epoch = relative.epoch
                return alias
        if relatives:
            return self._adopt_view(tensor, relatives)
        name = self._name_constant(tensor)
        kind = ValueKind.PARAMETER
        if name is None or name in self.tape.values:
            name, kind = f"constant#{self._constants}", ValueKind.CONSTANT
            self._constants += 1
        self.register(tensor, name, kind=kind)
        holder = self._storages.holder(tensor)
        assert holder is not None
        return holder

    def _adopt_view(self, tensor: torch.Tensor, relatives: list[Holder]) -> Holder:
        """A view made where no dispatch mode sees it (`.data`, a view taken before the run) of a known tensor."""
        widest = max(relatives, key=lambda holder: holder.geometry.extent()[1] - holder.geometry.extent()[0])
        known = widest.alive()
        geometry = geometry_of(tensor)
        base = widest.name if known is None else self.read(known)
        func = torch.ops.aten.as_strided.default
        arguments = (Ref(base), list(geometry.shape), list(geometry.stride), geometry.offset)
        self._record(Request(func=func, plan=plan_of(func), args=arguments, kwargs={}), results=[tensor], written=[])
        holder = self._storages.holder(tensor)
        assert holder is not None
        return holder

    def _add_value(self, name: str, tensor: torch.Tensor, kind: ValueKind) -> None:
        value = Recorded(
            name=name,
            kind=kind,
            dtype=tensor.dtype,
            geometry=geometry_of(tensor),
            device=tensor.device,
            plain=holds_array(tensor),
        )
        self.tape.values[name] = value
        if value.plain:
            self.vault.offer(value, tensor, storage=self._storages.log(tensor).key)

    def _run_higher_order(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a control-flow operator so that the branch or body it picks is recorded call by call."""
        name = func.name()
        with self:
            if name == "cond":
                predicate, when_true, when_false, operands = args
                return (when_true if bool(predicate) else when_false)(*operands)
            if name == "wrap_with_set_grad_enabled":
                _, body, *operands = args
                return body(*operands)
            if name == "wrap_with_autocast":
                device, dtype, enabled, cache, body, *operands = args
                with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache):
                    return body(*operands)
        return func(*args, **kwargs)


class WriteWatcher(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__ has no types
    """Tells of each tensor that is about to be written, and changes nothing."""

    def __init__(self, listener: Callable[[torch.Tensor], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without types
        self._listener = listener
        self._plans: dict[Any, SchemaPlan] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """See `Recorder`."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = plan_of(func)
        for tensor in plan.written_tensors(args, keywords):
            self._listener(tensor)
        return func(*args, **keywords)

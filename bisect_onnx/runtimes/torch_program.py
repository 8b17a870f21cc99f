"""References that are files: an exported program (``.pt2``) and a TorchScript archive."""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils import _pytree as pytree

from bisect_onnx.core.graph import Source
from bisect_onnx.errors import FeedsDoNotFitModuleError, ReferenceUnreadableError
from bisect_onnx.runtimes.torch_arrays import Array, to_tensor
from bisect_onnx.runtimes.torch_eager import EagerReference
from bisect_onnx.runtimes.torch_modules import NamesOf, Tracker
from bisect_onnx.runtimes.torch_sources import user_file
from bisect_onnx.runtimes.torch_tape import ModuleCall, Place

__all__ = ["ProgramReference", "load_program", "load_torchscript"]


def load_program(path: Path) -> "ProgramReference":
    """Open a ``.pt2``."""
    try:
        with _torch_warnings_aside():
            program = torch.export.load(path)
    except Exception as error:
        raise ReferenceUnreadableError(
            path=path,
            kind="an exported program written by torch.export.save",
            detail=_first_line(error),
            next_step=f"export it again with this version of torch ({torch.__version__})",
        ) from error
    return ProgramReference(program, description=str(path))


def load_torchscript(path: Path) -> EagerReference:
    """Open a TorchScript archive on the CPU."""
    try:
        with _torch_warnings_aside():
            module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]  # torch has none
    except Exception as error:
        raise ReferenceUnreadableError(
            path=path,
            kind="a TorchScript archive written by torch.jit.save",
            detail=_first_line(error),
            next_step=f"save it again with this version of torch ({torch.__version__})",
        ) from error
    return EagerReference(module, description=str(path))


class ProgramReference(EagerReference):
    """An exported program; module paths and source lines are those that its export recorded."""

    def __init__(self, program: torch.export.ExportedProgram, *, description: str) -> None:
        module = program.module()
        super().__init__(module, description=description)
        self._program_module = module
        self._binding = _ProgramBinding(program)
        self.input_names = self._binding.names

    def _tracker(self) -> Tracker:
        return _ProgramTracker(self._program_module)


class _ProgramBinding:
    """The inputs of a program are the leaves of its example arguments."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._leaves = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
        self._spec = program.call_spec.in_spec
        self.names = tuple(leaf.name for leaf in self._leaves if isinstance(leaf, TensorArgument))

    def arguments(
        self, feeds: Mapping[str, Array], *, device: torch.device | None
    ) -> tuple[list[Any], dict[str, Any], dict[str, torch.Tensor]]:
        """See `ArgumentBinding.arguments`."""
        if set(feeds) != set(self.names):
            raise FeedsDoNotFitModuleError(expected=self.names, got=tuple(feeds))
        tensors = {name: to_tensor(feeds[name], device=device) for name in self.names}
        flat = [leaf.value if isinstance(leaf, ConstantArgument) else tensors[leaf.name] for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(flat, self._spec)
        return list(args), dict(kwargs), tensors


class _ProgramTracker:
    """Runs the program's graph node by node, so that each call knows the node it belongs to."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.finished: list[ModuleCall] = []
        self._module = module
        self._node: torch.fx.Node | None = None
        self._places: dict[torch.fx.Node, Place] = {}

    @contextmanager
    def following(self, names_of: NamesOf) -> Iterator[None]:
        """See `Tracker.following`; the calls of modules are not to be seen in a program."""
        yield

    def call(self, *args: Any, **kwargs: Any) -> object:
        """Run the program."""
        flat = pytree.tree_leaves((args, kwargs))
        runner = _Stepper(self._module, tracker=self)
        return self._module.graph.process_outputs(runner.run(*flat, enable_io_processing=False))

    def enter(self, node: torch.fx.Node) -> None:
        """Say which node runs from now on."""
        if node.meta.get("nn_module_stack") or self._node is None:  # a node without it belongs to the one before
            self._node = node

    def place(self) -> Place:
        """Where the node came from, as the export recorded it."""
        if self._node is None:
            return Place(label="", module=None, source=None)
        if self._node not in self._places:
            self._places[self._node] = _place_of(self._node)
        return self._places[self._node]


class _Stepper(torch.fx.Interpreter):
    """An interpreter that says which node it runs, in the bodies of control-flow operators too."""

    def __init__(self, module: torch.fx.GraphModule, *, tracker: _ProgramTracker) -> None:
        super().__init__(module)
        self._tracker = tracker

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        self._tracker.enter(n)
        return super().run_node(n)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a module; the one that only checks shapes has been run before."""
        return None if target == "_guards_fn" else super().call_module(target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator, with the bodies it takes stepped through as well."""
        args = tuple(self._stepped(item) for item in args)
        return super().call_function(target, args, kwargs)

    def _stepped(self, item: Any) -> Any:
        if not isinstance(item, torch.fx.GraphModule):
            return item
        return lambda *operands: _Stepper(item, tracker=self._tracker).run(*operands)


def _place_of(node: torch.fx.Node) -> Place:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    source = _innermost_source(node.meta.get("stack_trace") or "")
    if not stack:
        return Place(label="", module=None, source=source)
    path, class_name = stack[-1]
    path, _, repetition = path.partition("@")
    name = class_name if isinstance(class_name, str) else class_name.__qualname__
    number = int(repetition) + 1 if repetition.isdigit() else 1
    module = ModuleCall(path=path, class_name=name.rpartition(".")[2], number=number)
    return Place(label=module.label, module=module, source=source)


_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+).*\n(?P<code>.*)', re.MULTILINE)


def _innermost_source(trace: str) -> Source | None:
    for frame in reversed(list(_FRAME.finditer(trace))):
        file = user_file(frame["file"])
        if file is not None and "/site-packages/torch/" not in file:  # exported in another environment
            return Source(file=file, line=int(frame["line"]), code=frame["code"].strip() or None)
    return None


@contextmanager
def _torch_warnings_aside() -> Iterator[None]:
    """What torch says to us about its own interfaces must not fail under the user's filters (``-W error``).

    Only while a file is read: no code of the user's runs then, so no warning of the user's is lost.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__

"""What a caller asks of `pipeline.locate.locate`: the command line and Python build the same object."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

__all__ = ["LocateRequest"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocateRequest:
    """Options of one `locate`; the defaults are the command line's."""

    candidate: Path
    reference: object  # REF as text, or an nn.Module, or another in-memory model torch knows
    inputs: object = None  # a path, a mapping or tuple of tensors or arrays, or a list of those; None draws random ones
    samples: bool = False  # the first axis of every input counts samples
    module: str | None = None  # path of the one submodule that is compared
    weights: Path | None = None
    unsafe_load: bool = False
    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    providers: tuple[str, ...] = ("CPUExecutionProvider",)  # full or short names ("cuda")
    level: int = 99  # ONNX Runtime's default: all optimisations
    session_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    custom_ops: tuple[Path, ...] = ()
    candidate_values: Path | None = None  # a capture: the candidate is what ran there
    strategy: str = "auto"  # "auto", "scan", "bisect"
    atol: float | None = None
    rtol: float | None = None
    metric: str | None = None  # a field of `core.compare.ErrorStats`, with ``threshold``
    threshold: float | None = None
    keep_list: Path | None = None  # where to write the nodes to keep in the higher precision; needs a tolerance
    force: bool = False  # replace files that are not ours
    max_memory: int | None = None  # bytes for kept values; None: half of what the machine has free

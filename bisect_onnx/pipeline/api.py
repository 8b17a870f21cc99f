"""The Python face of the use cases. Imports are inside the functions: `import bisect_onnx` stays cheap."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bisect_onnx.core.events import Listener
    from bisect_onnx.core.recording import Captured
    from bisect_onnx.core.report import Report

__all__ = ["capture", "locate"]


def locate(
    model: object,
    candidate: str | Path,
    inputs: object = None,
    *,
    samples: bool = False,
    module: str | None = None,
    weights: str | Path | None = None,
    unsafe_load: bool = False,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    providers: Sequence[str] = ("CPUExecutionProvider",),
    level: int = 99,
    session_options: Mapping[str, str] | None = None,
    custom_ops: Sequence[str | Path] = (),
    candidate_values: str | Path | None = None,
    strategy: str = "auto",
    atol: float | None = None,
    rtol: float | None = None,
    metric: str | None = None,
    threshold: float | None = None,
    keep_list: str | Path | None = None,
    force: bool = False,
    max_memory: int | None = None,
    on_event: "Listener | None" = None,
) -> "Report":
    """Find the node of an ONNX file that introduces its difference from a reference.

    The caller's module (mode, hooks, buffers, gradients), random state and arrays are as before when this
    returns or raises.

    Args:
        model: An nn.Module, an exported program or another model in memory; or text as ``--reference`` takes.
        candidate: The ONNX file.
        inputs: A mapping by input name, a tuple in call order, one tensor or array, or a path as
            ``--inputs`` takes; a list of mappings, of tuples or of paths is several samples. Every sample is run
            on both sides, and the worst one is located. None draws seeded random ones.
        samples: The first axis of every input counts samples, each of which is run apart.
        module: Path of the one submodule to compare, on what it is given in a run of the whole; the file may be that
            of the whole, or one exported from the submodule.
        weights: Checkpoint for the reference; the caller's own module is copied first.
        unsafe_load: Let the checkpoint unpickle more than tensors, which can run code from it.
        seed: Of random inputs.
        shapes: Sizes of random inputs, by input name.
        providers: Execution providers, full or short names.
        level: Optimisation level of ONNX Runtime: 0, 1, 2, 3, or 99 for all.
        session_options: Session options and configuration entries, as text.
        custom_ops: Operator libraries to register.
        candidate_values: A capture of the file on another machine: what it computed there is the candidate. The
            inputs are those of the capture.
        strategy: "auto", "scan" or "bisect".
        atol: Largest absolute difference of an output element, beside ``rtol``.
        rtol: Largest difference relative to the reference element.
        metric: A figure of the errors (``cosine``, ``snr_db``, ``max_abs``, ...) judged by ``threshold``.
        threshold: Limit for ``metric``: a lower one for ``cosine`` and ``snr_db``, an upper one otherwise.
        keep_list: Where to write the nodes that a lower-precision candidate must keep in the higher precision to
            come inside the tolerance, one name a line.
        force: Replace a file that is there.
        max_memory: Bytes for the reference's kept values; None: half of what the machine has free.
        on_event: Called with each event of `bisect_onnx.core.events`.

    Returns:
        The report; ``report.to_dict()`` is the JSON contract.

    Raises:
        BisectOnnxError: See `bisect_onnx.errors`.
    """
    from bisect_onnx.core.events import ignore
    from bisect_onnx.pipeline import locate as use_case
    from bisect_onnx.pipeline.request import LocateRequest

    request = LocateRequest(
        candidate=Path(candidate),
        reference=model,
        inputs=inputs,
        samples=samples,
        module=module,
        weights=None if weights is None else Path(weights),
        unsafe_load=unsafe_load,
        seed=seed,
        shapes={name: tuple(dims) for name, dims in (shapes or {}).items()},
        providers=tuple(providers),
        level=level,
        session_options=dict(session_options or {}),
        custom_ops=tuple(Path(library) for library in custom_ops),
        candidate_values=None if candidate_values is None else Path(candidate_values),
        strategy=strategy,
        atol=atol,
        rtol=rtol,
        metric=metric,
        threshold=threshold,
        keep_list=None if keep_list is None else Path(keep_list),
        force=force,
        max_memory=max_memory,
    )
    return use_case.locate(request, on_event=ignore if on_event is None else on_event)


def capture(
    candidate: str | Path,
    output: str | Path,
    inputs: object = None,
    *,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    providers: Sequence[str] = ("CPUExecutionProvider",),
    level: int = 99,
    session_options: Mapping[str, str] | None = None,
    custom_ops: Sequence[str | Path] = (),
    max_memory: int | None = None,
    force: bool = False,
    on_event: "Listener | None" = None,
) -> "Captured":
    """Record what an ONNX file computes on this machine, for a `locate` on another one.

    Args:
        candidate: The ONNX file.
        output: The ``.npz`` to write: inputs, the result of every node, outputs, and what the run depended on.
        inputs: A mapping by input name, a tuple, one array, or a path as ``--inputs`` takes. None draws seeded random
            ones.
        seed: Of random inputs.
        shapes: Sizes of random inputs, by input name.
        providers: Execution providers, full or short names.
        level: Optimisation level of ONNX Runtime: 0, 1, 2, 3, or 99 for all.
        session_options: Session options and configuration entries, as text.
        custom_ops: Operator libraries to register.
        max_memory: Bytes of values held at once; None: half of what the machine has free.
        force: Replace a file that is no earlier capture.
        on_event: Called with each event of `bisect_onnx.core.events`.

    Returns:
        What was written, and what is missing in it.

    Raises:
        BisectOnnxError: See `bisect_onnx.errors`.
    """
    from bisect_onnx.core.events import ignore
    from bisect_onnx.pipeline import capture as use_case

    request = use_case.CaptureRequest(
        model=Path(candidate),
        output=Path(output),
        inputs=inputs,
        seed=seed,
        shapes={name: tuple(dims) for name, dims in (shapes or {}).items()},
        providers=tuple(providers),
        level=level,
        session_options=dict(session_options or {}),
        custom_ops=tuple(Path(library) for library in custom_ops),
        max_memory=max_memory,
        force=force,
    )
    return use_case.capture(request, on_event=ignore if on_event is None else on_event)

"""Is it you? Checks of the comparison itself, before any node is blamed."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bisect_onnx.core.compare import Array
from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.report import OutputRow
from bisect_onnx.pipeline.sides import Sides

__all__ = ["evaluation_mode", "left_in_training", "training_modules", "unsteady_side"]

# Submodules named in a message before it says how many more there are.
MOST_NAMED = 5


def training_modules(module: Any) -> tuple[str, ...]:
    """Paths of the submodules in training mode; empty without a module."""
    if module is None:
        return ()
    from bisect_onnx.runtimes import torch_guard

    return torch_guard.training_modules(module)


@contextlib.contextmanager
def evaluation_mode(module: Any) -> Iterator[None]:
    """Evaluation mode for the block; every flag as it was afterwards."""
    if module is None:
        yield
        return
    from bisect_onnx.runtimes import torch_guard

    with torch_guard.eval_mode(module):
        yield


def left_in_training(paths: Sequence[str], *, before: Sequence[OutputRow], after: Sequence[OutputRow]) -> Finding:
    """The module is in training mode; proven when the outputs agree once it is not."""
    agrees = not any(row.verdict.value == "mismatch" for row in after)
    named = ", ".join(path or "the module itself" for path in paths[:MOST_NAMED])
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    effect = "in evaluation mode every output agrees" if agrees else "in evaluation mode outputs still differ"
    return Finding(
        code="HN001",
        name="left-in-training-mode",
        cause="K26",
        confidence=Confidence.PROVEN if agrees else Confidence.POSSIBLE,
        subject=paths[0],
        message=f"the reference was compared in training mode ({named}{more}); {effect}",
        facts={"training_modules": list(paths)},
        remedy="Call module.eval() before comparing, and before exporting.",
        counterfactual=Counterfactual(
            edit="module.eval()",
            local_before=None,
            local_after=None,
            output_before=_worst(before),
            output_after=_worst(after),
        ),
        references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval",),
    )


def _worst(rows: Sequence[OutputRow]) -> float | None:
    figures = [row.error.scaled for row in rows if row.error is not None and row.error.scaled is not None]
    return max(figures, default=None)


def unsteady_side(sides: Sides) -> Finding | None:
    """A side that answers differently when asked again; then nothing can be said about a node."""
    first = sides.reference.run(sides.feeds.reference)
    second = sides.reference.run(sides.feeds.reference)
    if not _same(first, second):
        return _unsteady("reference", sides.reference.description)
    first, second = (sides.candidate.run(sides.feeds.arrays) for _ in range(2))
    if not _same(first, second):
        return _unsteady("candidate", "the ONNX model")
    return None


def _same(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    """Whether two runs agree to about the last bits; thread scheduling may move those."""
    from bisect_onnx.pipeline.judge import scaled_gap

    return first.keys() == second.keys() and all(
        scaled_gap(first[name], second[name]) <= 64 * np.finfo(np.float32).eps for name in first
    )


def _unsteady(side: str, what: str) -> Finding:
    return Finding(
        code="HN002",
        name="run-does-not-repeat",
        cause="K13",
        confidence=Confidence.PROVEN,
        subject=None,
        message=f"the {side} ({what}) gives other numbers when it is run again on the same inputs",
        facts={"side": side},
        remedy="Remove the random operator, feed its noise as an input, or fix its seed on both sides.",
    )

"""Is it you? Checks of the comparison itself, before any node is blamed."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bisect_onnx.core.compare import Array
from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.graph import nested_label
from bisect_onnx.core.report import OutputRow
from bisect_onnx.errors import listing
from bisect_onnx.pipeline.judge import scaled_gap
from bisect_onnx.pipeline.output_pairing import OutputPair
from bisect_onnx.pipeline.random_nodes import random_calls, random_nodes
from bisect_onnx.pipeline.sides import Sides

__all__ = [
    "TrainingModules", "differ", "evaluation_mode", "inputs_changed", "left_in_training", "outputs_elsewhere",
    "outputs_lacking", "outputs_unpaired", "training_modules", "unsteady_side", "worst_scaled",
]  # fmt: skip

# Submodules named in a message before it says how many more there are.
MOST_NAMED = 5

# Two runs of one model on the same inputs: threads that take turns in another order move the last bits.
LAST_BITS = 64 * float(np.finfo(np.float32).eps)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TrainingModules:
    """Paths of the submodules in training mode, and of those among them whose operator heeds the mode."""

    paths: tuple[str, ...]
    dependent: tuple[str, ...]  # only torch's own layers are known; a user's may heed it too


def training_modules(module: Any) -> TrainingModules:
    """What is in training mode; nothing without a module."""
    if module is None:
        return TrainingModules(paths=(), dependent=())
    from bisect_onnx.runtimes import torch_guard

    return TrainingModules(paths=torch_guard.training_modules(module), dependent=torch_guard.mode_dependent(module))


@contextlib.contextmanager
def evaluation_mode(module: Any) -> Iterator[None]:
    """Evaluation mode for the block; every flag as it was afterwards."""
    if module is None:
        yield
        return
    from bisect_onnx.runtimes import torch_guard

    with torch_guard.eval_mode(module):
        yield


def differ(first: Mapping[str, Array], second: Mapping[str, Array], *, rows: Sequence[OutputRow]) -> bool:
    """Whether two runs of the reference differ by more than rounding.

    Args:
        first: Outputs of one run.
        second: Outputs of the other.
        rows: The outputs as they were judged; where a noise floor is known it counts.
    """
    noise = {row.reference: row.threshold for row in rows if row.noise is not None}
    return first.keys() != second.keys() or any(
        scaled_gap(first[name], second[name]) > max(LAST_BITS, noise.get(name) or 0.0) for name in first
    )


def worst_scaled(rows: Sequence[OutputRow]) -> float | None:
    """The largest `ErrorStats.scaled` of the outputs; None where none was measured."""
    figures = [row.error.scaled for row in rows if row.error is not None and row.error.scaled is not None]
    return max(figures, default=None)


def left_in_training(training: TrainingModules, *, before: Sequence[OutputRow], after: Sequence[OutputRow]) -> Finding:
    """The module is in training mode; proven when the outputs agree once it is not."""
    agrees = not any(row.verdict.value == "mismatch" for row in after)
    paths = training.dependent or training.paths
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
        facts={"training_modules": list(training.paths), "mode_dependent": list(training.dependent)},
        remedy="Call module.eval() before comparing, and before exporting.",
        counterfactual=Counterfactual(
            edit="module.eval()",
            local_before=None,
            local_after=None,
            output_before=worst_scaled(before),
            output_after=worst_scaled(after),
        ),
        references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval",),
    )


def outputs_elsewhere(
    pairs: Sequence[OutputPair], *, instead_of: Sequence[OutputPair], before: Sequence[OutputRow],
    after: Sequence[OutputRow],
) -> Finding:  # fmt: skip
    """Outputs were compared with others than their own; ``pairs`` are those in which they agree."""
    old = {pair.candidate: pair.reference for pair in instead_of}
    moved = [pair for pair in pairs if pair.reference is not None and pair.reference != old[pair.candidate]]
    places = ", ".join(f"{pair.candidate!r} is the reference's {pair.reference!r}" for pair in moved)
    return Finding(
        code="HN003",
        name="outputs-in-other-places",
        cause="K26",
        confidence=Confidence.PROVEN,
        subject=moved[0].candidate,
        message=f"outputs were compared with others than their own: {places}",
        facts={
            "pairs": {pair.candidate: pair.reference for pair in pairs},
            "compared": dict(old),
        },
        remedy="Export again with the outputs in the reference's order, or name them alike on both sides.",
        counterfactual=Counterfactual(
            edit="each output compared with the reference's output that it is",
            local_before=None,
            local_after=None,
            output_before=worst_scaled(before),
            output_after=worst_scaled(after),
        ),
    )


def outputs_unpaired(rows: Sequence[OutputRow], *, reference: Sequence[str], recorded: bool) -> Finding:
    """Nothing says which output of the reference belongs to an output that differs, or none does."""
    named = listing([row.name for row in rows], limit=MOST_NAMED)
    if recorded:
        message = f"the recording has no array named {named}, so no output was compared (it has {listing(reference)})"
        remedy = "Record the outputs as well, under the names that they have in the ONNX file."
    else:
        message = (
            f"neither names, shapes nor values say which output of the reference {named} stands for "
            f"(the reference has {listing(reference)})"
        )
        remedy = (
            "Name the outputs alike: output_names=[...] in the export, and a dict of those names as the "
            "module's result; or give as many on both sides, in one order."
        )
    return Finding(
        code="HN004",
        name="outputs-not-paired",
        cause="K26",
        confidence=Confidence.LIKELY,
        subject=rows[0].name,
        message=message,
        facts={"outputs": [row.name for row in rows], "reference": list(reference)},
        remedy=remedy,
    )


def unsteady_side(
    sides: Sides, *, rows: Sequence[OutputRow], answers: Mapping[str, Array], observed: Mapping[str, Array]
) -> Finding | None:
    """A side that answers differently when asked again; then nothing can be said about a node.

    Args:
        sides: Both sides.
        rows: The outputs as they were judged.
        answers: What the reference gave.
        observed: What the candidate gave.
    """
    reference, feeds = sides.reference, sides.feeds.reference
    if differ(answers, reference.rerun(feeds), rows=rows):
        again = differ(answers, reference.run(feeds), rows=rows)
        return _unsteady(
            "reference",
            reference.description,
            gives="gives other numbers" if again else "draws random numbers: it gives others",
            facts={"calls": random_calls(reference, feeds, max_bytes=sides.max_bytes)},
        )
    drawing = random_nodes(sides.candidate)
    named = listing([nested_label(node.path, node.name) for node in drawing], limit=MOST_NAMED)
    gives = f"draws random numbers in {named}: it gives others" if drawing else "gives other numbers"
    facts: dict[str, object] = {"nodes": [node.index for node in drawing]}
    if differ(observed, sides.candidate.run(sides.feeds.arrays), rows=()):
        return _unsteady("candidate", "the ONNX model", gives=gives, facts=facts)
    if differ(observed, sides.candidate.run_afresh(sides.feeds.arrays), rows=()):
        return _unsteady("candidate", "the ONNX model", gives=gives, facts=facts, where="in a fresh session ")
    return None


def _unsteady(side: str, what: str, *, gives: str, facts: Mapping[str, object], where: str = "") -> Finding:
    return Finding(
        code="HN002",
        name="run-does-not-repeat",
        cause="K13",
        confidence=Confidence.PROVEN,
        subject=None,
        message=f"the {side} ({what}) {gives} when it is run again {where}on the same inputs",
        facts={"side": side, **facts},
        remedy="Remove the random operator, feed its noise as an input, or fix its seed on both sides.",
    )


def inputs_changed(side: str, names: Sequence[str]) -> Finding:
    """A run wrote to its inputs: whoever passes the same arrays on gives the other side other numbers."""
    return Finding(
        code="HN009",
        name="inputs-changed-by-a-run",
        cause="K26",
        confidence=Confidence.PROVEN,
        subject=names[0],
        message=f"the {side} writes to its input {listing(list(names))} while it runs; here each side was given "
        "copies, and a comparison that hands the same arrays to both feeds the second one other numbers",
        facts={"side": side, "inputs": list(names)},
        remedy="Copy the inputs before each run, and work on a clone in forward.",
    )


def outputs_lacking(names: Sequence[str], *, compared: int) -> Finding:
    """The reference has outputs that the file does not: they were compared with nothing."""
    return Finding(
        code="HN010",
        name="outputs-not-in-the-file",
        cause=None,
        confidence=Confidence.PROVEN,
        subject=names[0],
        message=f"the file has {compared} of the reference's {compared + len(names)} outputs; compared with nothing: "
        f"{listing(list(names), limit=MOST_NAMED)}",
        facts={"outputs": list(names)},
        remedy="Export with all outputs that are used, or let forward return no more than those.",
    )

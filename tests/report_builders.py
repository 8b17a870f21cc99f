"""Hand-made reports: a small segmentation net, seen by each of the seven answers a run can give."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from bisect_onnx.core.alignment import Basis
from bisect_onnx.core.compare import ErrorStats, Verdict
from bisect_onnx.core.finding import Confidence, Counterfactual, Finding
from bisect_onnx.core.graph import Source
from bisect_onnx.core.report import (
    AlignmentSummary,
    Certificate,
    Culprit,
    CulpritError,
    InputRow,
    NodeRow,
    OutputRow,
    PairRow,
    ReasonCode,
    Report,
    SearchSummary,
    Stage,
    Status,
    Step,
    Strategy,
)  # fmt: skip
from bisect_onnx.core.second_judge import Agreement, SecondJudge

__all__ = ["CASES", "culprit", "error", "node", "output", "report", "with_culprits"]

FILE = "/home/ana/seg/segmentation.py"

ENVIRONMENT: Final[Mapping[str, object]] = {
    "bisect_onnx": "0.1.0",
    "python": "3.11.9",
    "torch": "2.13.0",
    "onnx": "1.23.2",
    "onnxruntime": "1.31.1",
    "providers": ["CPUExecutionProvider"],
    "level": 99,
}

# (module, node, op, value of the reference); the order is the file's.
LAYERS: Final = (
    ("encoder.stem.conv", "node_conv2d", "Conv", "conv2d"),
    ("encoder.stem.act", "node_relu", "Relu", "relu"),
    ("encoder.down1.conv", "node_conv2d_1", "Conv", "conv2d_1"),
    ("encoder.down1.act", "node_relu_1", "Relu", "relu_1"),
    ("encoder.down2.conv", "node_conv2d_2", "Conv", "conv2d_2"),
    ("encoder.down2.act", "node_relu_2", "Relu", "relu_2"),
    ("decoder.up1", "node_Resize_61", "Resize", "upsample_bilinear2d"),
    ("decoder.up1.conv", "node_conv2d_3", "Conv", "conv2d_3"),
    ("decoder.up1", "node_add", "Add", "add"),
    ("decoder.up2", "node_Shape_66", "Shape", None),
    ("decoder.up2", "node_Concat_68", "Concat", None),
    ("decoder.up2", "node_Resize_69", "Resize", "upsample_bilinear2d_1"),
    ("decoder.up2.conv", "node_conv2d_4", "Conv", "conv2d_4"),
    ("decoder.up2", "node_add_1", "Add", "add_1"),
    ("head.classify", "node_conv2d_5", "Conv", "conv2d_5"),
    ("head", "node_Resize_75", "Resize", "upsample_bilinear2d_2"),
    ("head", "node_Sigmoid_76", "Sigmoid", None),
    ("head", "node_Mul_77", "Mul", "silu"),
)
CULPRIT_AT: Final = 11


def error(scaled: float, **changes: object) -> ErrorStats:
    """Statistics of a smooth error of a tensor with an rms near 0.62."""
    fields: dict[str, Any] = {
        "max_abs": scaled * 0.62,
        "max_rel": scaled * 9.1,
        "rmse": scaled * 0.11,
        "relative_l2": scaled * 0.18,
        "cosine": 1 - min((scaled * 0.18) ** 2 / 2, 1.0),
        "snr_db": 14.9 - 20 * _log10(scaled),
        "max_ulp": int(scaled * 5_200_000),
        "mismatched": 0 if scaled == 0 else 8064,
        "total": 8192,
        "nonfinite_mismatch": 0,
        "worst_index": (0, 3, 0, 31) if scaled else None,
        "scaled": scaled,
    }
    return ErrorStats(**(fields | changes))


def _log10(value: float) -> float:
    import math

    return math.log10(value) if value else -16.0


def node(index: int, name: str, op_type: str, **changes: object) -> NodeRow:
    """A healthy row; ``changes`` are fields of `NodeRow`."""
    fields: dict[str, Any] = {
        "index": index,
        "node": name,
        "op_type": op_type,
        "path": (),
        "module": "",
        "pair": PairRow(reference=name, basis=Basis.EXPORTER, transform="identity"),
        "verdict": Verdict.MATCH,
        "inherited": 2.1e-7,
        "introduced": 1.4e-7,
        "accumulated": 2.4e-7,
        "noise": 4.8e-7,
        "threshold": 4.8e-6,
        "impact": None,
        "reason_code": None,
        "reason": None,
    }
    return NodeRow(**(fields | changes))


def untested(
    index: int, name: str, op_type: str, *, module: str, code: ReasonCode, reason: str | None = None
) -> NodeRow:
    return node(
        index, name, op_type, module=module, pair=None, verdict=Verdict.UNTESTABLE, inherited=None, introduced=None,
        accumulated=None, noise=None, threshold=None, reason_code=code, reason=reason,
    )  # fmt: skip


def layer_rows(*, faulty: bool) -> tuple[NodeRow, ...]:
    rows: list[NodeRow] = []
    for index, (module, name, op_type, value) in enumerate(LAYERS):
        if op_type in ("Shape", "Concat"):
            rows.append(untested(index, name, op_type, module=module, code=ReasonCode.SHAPE_ARITHMETIC))
        elif value is None:
            rows.append(
                untested(index, name, op_type, module=module, code=ReasonCode.INSIDE_SEGMENT, reason="of node_Mul_77")
            )
        else:
            pair = PairRow(reference=value, basis=Basis.EXPORTER, transform="identity")
            changes: dict[str, object] = {"introduced": 1.1e-7 + index * 7e-9, "accumulated": 1.2e-7 + index * 2.6e-8}
            changes["inherited"] = 0.0 if index == 0 else 1.2e-7 + (index - 1) * 2.6e-8
            if faulty and index == CULPRIT_AT:
                changes |= {"introduced": 0.412, "accumulated": 0.412, "verdict": Verdict.MISMATCH, "impact": 0.999996}
            elif faulty and index > CULPRIT_AT:
                changes |= {"inherited": 0.412 / (index - CULPRIT_AT), "accumulated": 0.38 / (index - CULPRIT_AT)}
                changes["verdict"] = Verdict.MISMATCH
            rows.append(node(index, name, op_type, module=module, pair=pair, **changes))
    return tuple(rows)


def culprit(**changes: object) -> Culprit:
    """The second Resize of the decoder, with a wrong coordinate mode."""
    fields: dict[str, Any] = {
        "node": "node_Resize_69",
        "op_type": "Resize",
        "domain": "",
        "index": CULPRIT_AT,
        "path": (),
        "inputs": ("add", "", "", "cat_1"),
        "outputs": ("upsample_bilinear2d_1",),
        "attributes": {
            "coordinate_transformation_mode": "asymmetric",
            "cubic_coeff_a": -0.75,
            "mode": "linear",
            "nearest_mode": "floor",
        },
        "group": ("node_Resize_69",),
        "module": "decoder.up2",
        "module_class": "segmentation.UpBlock",
        "torch_op": "aten.upsample_bilinear2d.vec",
        "source": Source(
            file=FILE,
            line=41,
            code='        x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)',
        ),
        "error": CulpritError(
            inherited=error(3.8e-7, input="add"),
            introduced=error(0.412, worst_index=(0, 3, 0, 31)),
            accumulated=error(0.412, worst_index=(0, 3, 0, 31)),
        ),
        "noise": 4.8e-7,
        "threshold": 4.8e-6,
        "certificate": Certificate(inputs_match=True, output_differs=True, replay_reproduces=True),
        "impact": 0.999996,
        "confidence": "certified",
        "second_judge": SecondJudge(agrees_with=Agreement.RUNTIME),
    }
    return Culprit(**(fields | changes))


def output(name: str, scaled: float, **changes: object) -> OutputRow:
    over = scaled > 2.4e-5
    fields: dict[str, Any] = {
        "name": name,
        "reference": name,
        "verdict": Verdict.MISMATCH if over else Verdict.MATCH,
        "reason": None,
        "error": error(scaled),
        "noise": 2.4e-6,
        "threshold": 2.4e-5,
    }
    return OutputRow(**(fields | changes))


def report(status: Status, **changes: object) -> Report:
    """A parity report of the net with ``status`` and ``changes`` put in."""
    fields: dict[str, Any] = {
        "status": status,
        "stage": None,
        "summary": "",
        "outputs": (output("mask", 4.2e-7), output("edges", 3.1e-7)),
        "nodes": layer_rows(faulty=False),
        "alignment": AlignmentSummary(
            pairs=14,
            values=18,
            coverage=0.9375,
            coverage_all=14 / 18,
            by_basis={"exporter": 14},
            unmatched=(
                ("val_66", "shape arithmetic"),
                ("cat_1", "shape arithmetic"),
                ("val_76", "inside the segment of node_Mul_77"),
            ),
        ),
        "search": SearchSummary(strategy=Strategy.SCAN, probes=1, runs=3),
        "environment": ENVIRONMENT,
        "inputs": (
            InputRow(name="image", shape=(1, 3, 64, 64), dtype="float32", range=(-2.1179, 2.64), source="image.npz"),
        ),
        "timing": {"open": 0.412, "capture": 0.093, "align": 0.051, "search": 0.37, "total": 0.94},
        "peak_memory_bytes": 412_352_512,
        "next_steps": (),
    }
    return Report(**(fields | changes))


def with_culprits(*culprits: Culprit, status: Status = Status.LOCATED, **changes: object) -> Report:
    fields: dict[str, Any] = {
        "stage": Stage.EXPORT,
        "summary": "node_Resize_69 (Resize) in decoder.up2 introduces the error",
        "culprits": culprits,
        "outputs": (output("mask", 0.127), output("edges", 3.1e-7)),
        "nodes": layer_rows(faulty=True),
        "search": SearchSummary(strategy=Strategy.SCAN, probes=1, runs=6),
        "next_steps": (
            f"Look at {FILE}:41 and at how Resize was exported.",
            "bisect-onnx locate seg.onnx -r segmentation.py:build -i image.npz --all",
        ),
    }
    return report(status, **(fields | changes))


RESIZE_FINDING: Final = Finding(
    code="RS001",
    name="resize-coordinates-differ",
    cause="K01",
    confidence=Confidence.PROVEN,
    subject="node_Resize_69",
    message="the node samples at 'asymmetric' coordinates, the reference at 'half_pixel'",
    facts={
        "candidate": "asymmetric",
        "reference": "half_pixel",
        "tried": ["half_pixel", "align_corners", "asymmetric"],
    },
    remedy="set coordinate_transformation_mode to 'half_pixel' on this node, or export again with align_corners=False",
    counterfactual=Counterfactual(
        edit="node_Resize_69: coordinate_transformation_mode = half_pixel",
        local_before=0.412,
        local_after=1.9e-7,
        output_before=0.127,
        output_after=4.4e-7,
    ),
    references=("https://onnx.ai/onnx/operators/onnx__Resize.html",),
)


def parity() -> Report:
    return report(Status.PARITY, summary="the outputs agree (2 compared)")


def located() -> Report:
    return with_culprits(culprit(), findings=(RESIZE_FINDING,))


def suspected() -> Report:
    doubtful = Certificate(inputs_match=True, output_differs=None, replay_reproduces=None)
    unproven = CulpritError(inherited=error(3.8e-7, input="add"), introduced=None, accumulated=error(0.412))
    first = culprit(certificate=doubtful, confidence="suspected", error=unproven, impact=None)
    second = culprit(
        node="node_conv2d_4", op_type="Conv", index=12, inputs=("upsample_bilinear2d_1", "decoder.up2.conv.weight"),
        outputs=("conv2d_4",), attributes={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, group=("node_conv2d_4",),
        module="decoder.up2.conv", module_class="torch.nn.Conv2d", torch_op="aten.conv2d.default", source=None,
        certificate=Certificate(inputs_match=None, output_differs=True, replay_reproduces=None), confidence="suspected",
        error=unproven, impact=None,
    )  # fmt: skip
    steps = (
        Step(probe="relu_2", verdict=Verdict.MATCH, suspects_before=14, suspects_after=8),
        Step(probe="add_1", verdict=Verdict.MISMATCH, suspects_before=8, suspects_after=4),
        Step(probe="add", verdict=Verdict.MATCH, suspects_before=4, suspects_after=2),
        Step(probe="upsample_bilinear2d_1", verdict=Verdict.UNTESTABLE, suspects_before=2, suspects_after=2),
    )
    return with_culprits(
        first, second, status=Status.SUSPECTED,
        nodes=tuple(dataclasses.replace(row, introduced=None) for row in layer_rows(faulty=True)),
        summary="node_Resize_69 (Resize) in decoder.up2 is suspected of the error, and 1 more",
        search=SearchSummary(strategy=Strategy.BISECT, probes=4, runs=6, steps=steps),
        next_steps=("bisect-onnx locate seg.onnx -r segmentation.py:build -i image.npz --level 0",),
    )  # fmt: skip


def accumulation() -> Report:
    return report(
        Status.ACCUMULATION, stage=Stage.PRECISION,
        summary="2 of 2 outputs differ beyond tolerance, and every node stays within its floor: no single culprit",
        outputs=(output("mask", 3.4e-3), output("edges", 1.9e-3)),
        nodes=tuple(
            dataclasses.replace(
                row, inherited=4e-4 + row.index * 1.7e-4, introduced=4.1e-4, accumulated=4e-4 + row.index * 1.8e-4,
                noise=4.9e-4, threshold=4.9e-3, impact=0.04,
            )
            if row.verdict is Verdict.MATCH else row
            for row in layer_rows(faulty=False)
        ),
        next_steps=("accept it with a tolerance of your own: --rtol 5e-3 --atol 5e-3",),
    )  # fmt: skip


def harness() -> Report:
    finding = Finding(
        code="HN001", name="module-in-training-mode", cause="K05", confidence=Confidence.PROVEN, subject="encoder.drop",
        message="the module is in training mode: Dropout and BatchNorm do not compute what the exported graph does",
        facts={"training modules": ["", "encoder", "encoder.drop"], "runs agree": False},
        remedy="call model.eval() in the factory before you return the module",
        counterfactual=Counterfactual(
            edit="reference.eval()", local_before=None, local_after=None, output_before=0.54, output_after=4.2e-7
        ),
    )  # fmt: skip
    return report(
        Status.HARNESS, stage=Stage.HARNESS,
        summary="the graphs agree, the comparison was set up wrongly: the module was left in training mode",
        findings=(finding,), outputs=(output("mask", 0.54), output("edges", 0.33)), nodes=(),
        search=SearchSummary(strategy=Strategy.NONE),
        alignment=AlignmentSummary(pairs=0, values=18, coverage=None, coverage_all=None, by_basis={}, unmatched=()),
    )  # fmt: skip


def inconclusive() -> Report:
    return report(
        Status.INCONCLUSIVE, stage=None,
        summary="1 of 2 outputs differ, but no node can be accused: "
        "3 of 18 values have a counterpart, none of them above it",
        outputs=(
            output("mask", 0.127),
            output("edges", 0.0, error=None, verdict=Verdict.UNTESTABLE, threshold=None, noise=None,
                   reason="shape: reference (1, 2, 64, 64), candidate (1, 2, 32, 32)"),
        ),
        alignment=AlignmentSummary(
            pairs=3, values=18, coverage=0.1875, coverage_all=3 / 18, by_basis={"value": 2, "structure": 1},
            unmatched=tuple((f"val_{at}", "no counterpart") for at in range(15)),
        ),
        nodes=tuple(
            untested(row.index, f"#{row.index}:{row.op_type}", row.op_type, module="", code=ReasonCode.UNPAIRED)
            for row in layer_rows(faulty=True)
        ),
        inputs=(
            InputRow(name="image", shape=(1, 3, 64, 64), dtype="float32", range=(-4.0, 4.12), source="random (seed 0)"),
        ),
        next_steps=("export again with node metadata kept",),
    )  # fmt: skip


def load_failed() -> Report:
    blamed = culprit(
        node="node_Silu_77", op_type="Silu", domain="com.microsoft", index=16, inputs=("upsample_bilinear2d_2",),
        outputs=("silu",), attributes={}, group=("node_Silu_77",), module="head", module_class="segmentation.Head",
        torch_op="aten.silu.default", source=Source(file=FILE, line=58, code="        return F.silu(x)"),
        error=CulpritError(inherited=None, introduced=None, accumulated=None), noise=None, threshold=None,
        certificate=Certificate(inputs_match=None, output_differs=None, replay_reproduces=None), impact=None,
        confidence="certified",
    )  # fmt: skip
    finding = Finding(
        code="LD001", name="unknown-operator", cause="K23", confidence=Confidence.PROVEN, subject="node_Silu_77",
        message="the runtime has no operator Silu in the domain com.microsoft",
        facts={"domain": "com.microsoft", "imported version": 1},
        remedy="replace it by Sigmoid and Mul", counterfactual=Counterfactual(
            edit="node_Silu_77 becomes Sigmoid and Mul: the model loads", local_before=None, local_after=None,
            output_before=None, output_after=4.2e-7,
        ),
    )  # fmt: skip
    return report(
        Status.LOAD_FAILED, stage=Stage.EXPORT,
        summary="the runtime cannot load the model, because of node_Silu_77: it has no operator com.microsoft:Silu",
        culprits=(blamed,), findings=(finding,), outputs=(), nodes=(), search=SearchSummary(strategy=Strategy.NONE),
        alignment=AlignmentSummary(pairs=0, values=18, coverage=None, coverage_all=None, by_basis={}, unmatched=()),
    )  # fmt: skip


CASES: Final[Mapping[str, Callable[[], Report]]] = {
    "parity": parity,
    "located": located,
    "suspected": suspected,
    "accumulation": accumulation,
    "harness": harness,
    "inconclusive": inconclusive,
    "load_failed": load_failed,
}

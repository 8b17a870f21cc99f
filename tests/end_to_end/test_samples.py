"""Several samples in one run: each is run apart, the worst is found, named and located."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

import bisect_onnx
from bisect_onnx.core.feeds import InputSignature
from bisect_onnx.core.report import Report, Status
from bisect_onnx.errors import FeedShapeError, SampleFailedError, SamplesError
from bisect_onnx.pipeline.samples import Rows
from bisect_onnx.readers.mapped_feeds import map_npz
from tests import onnx_models
from tests.end_to_end.at_work import assert_valid

WEIGHT = onnx_models.random((8, 8))


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(WEIGHT.copy()))

    def forward(self, x):
        return torch.sigmoid(torch.relu(x @ self.weight) * 0.1)


def clipped(path: Path, *, rows: int | str = 1, at: float = 30.0) -> Path:
    """The net with a Clip for its relu: right until a value is larger than ``at``."""
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"], name="product"),
        helper.make_node("Clip", ["product", "zero", "most"], ["active"], name="active"),
        helper.make_node("Mul", ["active", "tenth"], ["scaled"], name="scaled"),
        helper.make_node("Sigmoid", ["scaled"], ["y"], name="y"),
    ]
    weights = {
        "weight": WEIGHT,
        "zero": number(0),
        "most": number(at),
        "tenth": number(0.1),
    }
    return onnx_models.save(
        path, nodes, inputs=[onnx_models.value("x", [rows, 8])], outputs=["y"], weights=weights, opset=17
    )


def many(count: int, *, bad: int, shape: tuple[int, ...] = (1, 8)) -> np.ndarray:
    """Samples of ordinary size, one of them thirty times as large."""
    x = onnx_models.random((count, *shape), seed=3)
    x[bad] *= 30
    return x


def found(report: Report) -> tuple[Status, str | None, str]:
    assert_valid(report)
    return report.status, report.culprit.node if report.culprit else None, report.inputs[0].source


def test_one_bad_sample_of_two_thousand_is_found_named_and_located(tmp_path: Path):
    np.savez(tmp_path / "x.npz", x=many(2000, bad=1234))

    report = bisect_onnx.locate(Net(), clipped(tmp_path / "m.onnx"), tmp_path / "x.npz", samples=True)

    assert found(report) == (Status.LOCATED, "active", "x.npz[1234]")
    assert report.inputs[0].shape == (1, 8)
    assert report.summary.endswith("; of 2,000 samples 1 differ, x.npz[1234] most")


def test_the_worst_of_several_files_is_located(tmp_path: Path):
    paths = [tmp_path / name for name in ("a.npz", "b.npz", "c.npz")]
    for path, size in zip(paths, (0.05, 0.2, 0.1), strict=True):
        np.savez(path, x=many(1, bad=0)[0] * np.float32(size))

    report = bisect_onnx.locate(Net(), clipped(tmp_path / "m.onnx", at=5), paths)

    assert found(report) == (Status.LOCATED, "active", "b.npz")


@pytest.mark.parametrize("nest", [lambda x: {"x": x}, lambda x: (torch.from_numpy(x),)])
def test_a_list_of_what_calls_take_is_a_list_of_samples(nest, tmp_path: Path):
    x = many(3, bad=1)

    report = bisect_onnx.locate(Net(), clipped(tmp_path / "m.onnx"), [nest(row) for row in x])

    assert found(report) == (Status.LOCATED, "active", "inputs[1]")


def test_a_batch_axis_may_count_the_samples(tmp_path: Path):
    x = many(5, bad=4, shape=(8,))

    report = bisect_onnx.locate(Net(), clipped(tmp_path / "m.onnx", rows="n"), (x,), samples=True)

    assert found(report) == (Status.LOCATED, "active", "inputs[4]")
    assert report.inputs[0].shape == (1, 8)


def test_samples_that_all_agree_are_parity(tmp_path: Path):
    report = bisect_onnx.locate(Net(), clipped(tmp_path / "m.onnx", at=1e9), {"x": many(7, bad=2)}, samples=True)

    assert found(report)[:2] == (Status.PARITY, None)
    assert report.summary.startswith("the outputs agree (1 compared) for each of 7 samples; inputs[")


@pytest.mark.parametrize(
    "tolerance",
    [{"atol": 1e-4}, {"rtol": 1e-4}, {"metric": "snr_db", "threshold": 60.0}, {"metric": "max_abs", "threshold": 1e-4}],
)
def test_the_worst_is_the_worst_by_the_users_own_tolerance(tolerance, tmp_path: Path):
    x = many(6, bad=2)
    x[4] = x[2] * 3

    report = bisect_onnx.locate(Net(), clipped(tmp_path / "m.onnx"), {"x": x}, samples=True, **tolerance)

    assert found(report) == (Status.LOCATED, "active", "inputs[4]")
    assert "of 6 samples 2 differ, inputs[4] most" in report.summary


class Cancelling(nn.Module):
    """Loses all its digits where the bias is large, in any correct run; ``y`` clips as `clipped` does."""

    def forward(self, x, big):
        return torch.relu(x), ((x + big).sum(-1) - big.sum(-1)).sin()


def cancelling(path: Path) -> Path:
    nodes = [
        helper.make_node("Clip", ["x", "zero", "most"], ["y"], name="active"),
        helper.make_node("Add", ["x", "big"], ["moved"], name="moved"),
        helper.make_node("ReduceSum", ["moved", "last"], ["all"], name="all", keepdims=0),
        helper.make_node("ReduceSum", ["big", "last"], ["bias"], name="bias", keepdims=0),
        helper.make_node("Sub", ["all", "bias"], ["left"], name="left"),
        helper.make_node("Sin", ["left"], ["wave"], name="wave"),
    ]
    weights = {"zero": number(0), "most": number(4.999), "last": np.array([-1])}
    inputs = [onnx_models.value(name, [4, 700]) for name in ("x", "big")]
    return onnx_models.save(path, nodes, inputs=inputs, outputs=["y", "wave"], weights=weights, opset=17)


def test_a_sample_with_more_noise_does_not_hide_one_with_a_fault(tmp_path: Path):
    x = np.clip(onnx_models.random((3, 4, 700)), -3, 3)
    big = np.zeros_like(x)
    big[1] = 1e4 * (1 + onnx_models.random((4, 700), seed=5) ** 2)  # noise alone
    x[2, 0, 0] = 5.0  # the fault alone

    report = bisect_onnx.locate(Cancelling(), cancelling(tmp_path / "m.onnx"), {"x": x, "big": big}, samples=True)

    assert found(report) == (Status.LOCATED, "active", "inputs[2]")


def test_nested_inputs_differ_from_sample_to_sample(tmp_path: Path):
    class Pairs(nn.Module):
        def forward(self, pair):
            return torch.relu(pair[0] + pair[1])

    model = helper.make_node
    nodes = [model("Add", ["a", "b"], ["sum"]), model("Clip", ["sum", "zero", "most"], ["y"], name="active")]
    inputs = [onnx_models.value(name, [1, 8]) for name in ("a", "b")]
    weights = {"zero": number(0), "most": number(6)}
    path = onnx_models.save(tmp_path / "m.onnx", nodes, inputs=inputs, outputs=["y"], weights=weights, opset=17)
    a = many(4, bad=2)
    b = onnx_models.random((1, 8), seed=9)
    calls = [((torch.from_numpy(row), torch.from_numpy(b)),) for row in a]

    report = bisect_onnx.locate(Pairs(), path, calls)

    assert found(report) == (Status.LOCATED, "active", "inputs[2]")
    assert [row.range for row in report.inputs] == [(a[2].min(), a[2].max()), (b.min(), b.max())]


def test_the_caller_s_samples_stay_as_they_are(tmp_path: Path):
    class Writes(Net):
        def forward(self, x):
            return super().forward(x.mul_(1.0).clamp_(-1e9, 1e9))

    x = many(3, bad=0)
    before = x.copy()

    bisect_onnx.locate(Writes(), clipped(tmp_path / "m.onnx"), {"x": x}, samples=True)

    assert x.tobytes() == before.tobytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_an_archive_are_mapped_when_they_can_be(save, tmp_path: Path):
    arrays = {"a": onnx_models.random((5, 3)), "b": np.asfortranarray(onnx_models.random((4, 6)))}
    save(tmp_path / "x.npz", **arrays)

    named = map_npz(tmp_path / "x.npz").named

    assert {name: array.tolist() for name, array in named.items()} == {n: a.tolist() for n, a in arrays.items()}
    assert all(isinstance(array, np.memmap) == (save is np.savez) for array in named.values())


def test_a_damaged_archive_is_not_mapped(tmp_path: Path):
    np.savez(tmp_path / "x.npz", x=np.zeros((64, 64), np.float32))
    damaged = bytearray((tmp_path / "x.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "x.npz").write_bytes(damaged)

    with pytest.raises(bisect_onnx.errors.FeedsUnreadableError, match=r"Bad CRC-32"):
        map_npz(tmp_path / "x.npz")


def test_a_sample_that_does_not_fit_is_named(tmp_path: Path):
    with pytest.raises(FeedShapeError) as caught:
        bisect_onnx.locate(Net(), clipped(tmp_path / "m.onnx"), {"x": np.zeros((3, 1, 9), np.float32)}, samples=True)

    assert "  where:    inputs[0]\n" in str(caught.value)


def test_a_sample_on_which_a_side_fails_is_named(tmp_path: Path):
    class Picky(Net):
        def forward(self, x):
            if x.max() > 10:
                raise ValueError("too large")
            return super().forward(x)

    with pytest.raises(SampleFailedError) as caught:
        bisect_onnx.locate(Picky(), clipped(tmp_path / "m.onnx"), {"x": many(4, bad=3)}, samples=True)

    assert str(caught.value) == (
        "the sample inputs[3] could not be run: the reference failed while it ran\n"
        "  where:    inputs[3]\n"
        "  expected: a run to the end on every sample\n"
        "  got:      where:    Picky; expected: a run to the end; got:      ValueError: too large; "
        "next:     run the module on these inputs yourself; mind shapes, dtypes and the order of arguments\n"
        "  next:     run locate on inputs[3] alone, or leave it out"
    )


SIGNATURE = [
    InputSignature(name="x", dtype="float32", dims=(1, 8)),
    InputSignature(name="mask", dtype="float32", dims=("n",)),
]


@pytest.mark.parametrize(
    ("shapes", "got"),
    [
        ({"x": (3, 1, 8), "mask": (2, 4)}, "'x' of shape (3, 1, 8), 'mask' of shape (2, 4)"),
        ({"x": (3, 1, 8), "mask": ()}, "'x' of shape (3, 1, 8), 'mask' of shape ()"),
        ({"x": (0, 1, 8), "mask": (0, 4)}, "'x' of shape (0, 1, 8), 'mask' of shape (0, 4)"),
        ({"x": (3, 1, 8), "mask": (3,)}, "'x' with 3 axes for float32[1, 8], 'mask' with 1 axes for float32[n]"),
        (
            {"x": (3, 2, 1, 8), "mask": (3, 2, 4)},
            "'x' with 4 axes for float32[1, 8], 'mask' with 3 axes for float32[n]",
        ),
    ],
)
def test_arrays_that_do_not_count_the_same_samples_are_refused(shapes, got):
    with pytest.raises(SamplesError) as caught:
        Rows({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, signature=SIGNATURE, source="a.npz")

    assert "  where:    a.npz\n" in str(caught.value)
    assert f"  got:      {got}\n" in str(caught.value)


def test_samples_need_inputs(tmp_path: Path):
    with pytest.raises(SamplesError, match="got:      no inputs"):
        bisect_onnx.locate(Net(), clipped(tmp_path / "m.onnx"), samples=True)


def test_recorded_values_are_those_of_one_sample(tmp_path: Path):
    np.savez(tmp_path / "v.npz", x=many(1, bad=0)[0], y=np.zeros((1, 8), np.float32))

    with pytest.raises(SamplesError, match="got:      recorded values"):
        bisect_onnx.locate(tmp_path / "v.npz", clipped(tmp_path / "m.onnx"), {"x": many(2, bad=0)}, samples=True)

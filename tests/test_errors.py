"""Every error has a page that says what, where, expected, got and next, pinned word for word."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisect_onnx import errors
from bisect_onnx.errors import BisectOnnxError

PAGES = Path(__file__).parent / "golden" / "error_pages.txt"


def subclasses(kind: type[BisectOnnxError]) -> Iterator[type[BisectOnnxError]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


# Those that something is raised as; the others group them.
RAISED = sorted((kind for kind in subclasses(BisectOnnxError) if not kind.__subclasses__()), key=lambda k: k.__name__)

EXAMPLES: dict[type[BisectOnnxError], BisectOnnxError] = {
    type(example): example
    for example in (
        errors.ReferenceNotFoundError(
            reference="modle.py:build", where="/home/me/modle.py", got="no such file", similar=["model.py"]
        ),
        errors.ReferenceFormError(
            reference="model.h5", got="a file whose suffix is '.h5'", next_step="give one of those forms"
        ),
        errors.ReferenceImportError(
            reference="model.py:build",
            line="/home/me/model.py, line 3: import timm",
            problem="ModuleNotFoundError: No module named 'timm'",
            next_step="install 'timm', or run bisect-onnx in the environment where the model runs",
        ),
        errors.FactoryNotFoundError(
            reference="model.py:biuld", module="model.py", name="biuld", nearest=["build"], defined=["Net", "build"]
        ),
        errors.FactoryFailedError(
            reference="model.py:build", line="/home/me/model.py, line 9: return Net(size)", problem="NameError: size"
        ),
        errors.FactoryResultError(reference="model.py:build", got="a dict with 3 keys"),
        errors.ReferenceUnreadableError(
            path=Path("/home/me/model.pt2"), kind="an exported program", detail="12 bytes", next_step="save it again"
        ),
        errors.UninitializedModuleError(description="model.py:build", parameter="head.weight"),
        errors.SubmoduleNotFoundError(path="layer.0", root="Net", near=["layers.0"], known=["layers", "layers.0"]),
        errors.SubmoduleNotCalledError(path="layers.0", root="model.py:build"),
        errors.SubmodulePartError(
            path="layers.0", where="/home/me/model.onnx", got="no value paired", next_step="export it alone"
        ),
        errors.WeightsNotFoundError(path=Path("/home/me/best.pt")),
        errors.WeightsFormatError(
            path=Path("/home/me/best.pt"), got="an object of list", next_step="save module.state_dict() instead"
        ),
        errors.WeightsUnreadableError(path=Path("/home/me/best.pt"), detail="the file ends early"),
        errors.WeightsNeedPickleError(path=Path("/home/me/best.pt"), detail="an object of argparse.Namespace"),
        errors.WeightsMismatchError(
            path=Path("/home/me/best.pt"),
            module="Net",
            matched=2,
            missing=[f"block.{index}.weight" for index in range(7)],
            unexpected=["head.weight"],
            shapes=["stem.weight: the module has (8, 3), the file (4, 3)"],
            next_step="build the module with the options that the checkpoint was trained with",
        ),
        errors.WeightsNotApplicableError(path=Path("/home/me/best.pt"), kind="an ExportedProgram"),
        errors.FeedsNotFoundError(path=Path("/home/me/feeds.npz")),
        errors.FeedsFormatError(
            where="/home/me/feeds.csv", got="a file whose suffix is '.csv'", next_step="save the inputs with np.savez"
        ),
        errors.FeedsUnreadableError(
            path=Path("/home/me/feeds.npz"), kind="an .npz archive written by np.savez", detail="12 bytes"
        ),
        errors.FeedsNeedPickleError(where="/home/me/feeds.npz", got="'x' is an array of Python objects"),
        errors.FeedNamesError(
            where="feeds.npz",
            signature=["image", "mask"],
            missing=["image"],
            extra=["imgae"],
            guesses=[("imgae", "image")],
        ),
        errors.FeedCountError(where="caller", signature=["image", "mask"], count=3),
        errors.FeedShapeError(
            where="feeds.npz",
            name="image",
            expected="float32[batch, 3, 8, 8]",
            got="float32[1, 3, 8, 9]",
            problem="axis 3 has length 9, and the file fixes 8",
        ),
        errors.FeedDtypeError(where="feeds.npz", name="ids", expected="int64", got="int32"),
        errors.EmptyFeedError(where="feeds.npz", name="image", shape=(0, 3)),
        errors.SamplesError(
            where="a.npz", expected="one first axis", got="'x' of shape ()", next_step="leave out --samples"
        ),
        errors.SampleFailedError(
            label="a.npz[3]",
            detail=str(errors.ReferenceFailedError(description="model.py:build", detail="IndexError: 7")),
        ),
        errors.ShapeOptionError(
            name="image", expected="float32[batch, 3]", got="1,2,3", next_step="keep the rank and the fixed lengths"
        ),
        errors.RandomFeedError(
            where="graph inputs of the candidate", name="text", got="a string tensor", next_step="give --inputs"
        ),
        errors.InputPairingError(
            where="graph inputs of the candidate",
            candidate=["a"],
            reference=["x", "y"],
            problem="1 of the candidate are left over against 2 of the reference",
            next_step="export again with input_names=[...]",
        ),
        errors.FeedsDoNotFitModuleError(expected=["x", "y"], got=["x"]),
        errors.ModelNotFoundError(path=Path("/home/me/model.onnx"), got="no such file"),
        errors.NotAnOnnxFileError(
            path=Path("/home/me/model.onnx"), got="an empty file", next_step="export or copy the file again"
        ),
        errors.ExternalDataError(
            model=Path("/home/me/model.onnx"),
            tensor="stem.weight",
            data=Path("/home/me/model.onnx.data"),
            needed=4096,
            problem="the file does not exist",
        ),
        errors.UnknownProviderError(
            provider="cudaa", available=["CPUExecutionProvider"], short=["cpu", "cuda"]
        ),
        errors.UnknownSessionOptionError(option="threads", known=["intra_op_num_threads"]),
        errors.SessionOptionValueError(option="intra_op_num_threads", value="many", expected="an integer"),
        errors.OptimizationLevelError(level=7),
        errors.CustomOpsError(library=Path("/home/me/ops.so"), problem="no such file"),
        errors.RecordingError(
            path=Path("/home/me/values.npz"), expected="arrays", got="an empty archive", next_step="capture again"
        ),
        errors.CandidateValuesError(
            path=Path("/home/me/values.npz"),
            expected="the inputs that it was captured with (feeds.npz)",
            got="another array for 'image'",
            next_step="leave out --inputs, or capture again with these inputs",
        ),
        errors.KeepListToleranceError(path=Path("/home/me/keep.txt")),
        errors.OutputPathError(
            option="--json",
            path=Path("/home/me/out/report.json"),
            expected="a file in a folder that exists",
            got="no folder /home/me/out",
            next_step="make the folder first",
        ),
        errors.ProviderNotGrantedError(provider="CUDAExecutionProvider", got=["CPUExecutionProvider"]),
        errors.ModelNotLoadedError(
            path=Path("/home/me/model.onnx"), configuration="CPUExecutionProvider", detail="no kernel for Silu"
        ),
        errors.RuntimeFailedError(
            runtime="ONNX Runtime", path=Path("/home/me/model.onnx"), fetching="outputs", detail="index out of range"
        ),
        errors.CommandNotInstalledError(command="locate"),
        errors.RuntimeNotInstalledError(runtime="ort", package="onnxruntime", install="pip install onnxruntime"),
        errors.ReferenceFailedError(description="model.py:build", detail="RuntimeError: mat1 and mat2"),
        errors.ReferenceNotRepeatableError(value="conv_1", missing=2, wanted=9),
        errors.DemoNotBuiltError(folder=Path("/home/me/demo"), detail="no such file or directory"),
        errors.TemporarySpaceError(folder=Path("/tmp"), problem="no space left on device"),
    )
}  # fmt: skip


def pinned_pages() -> dict[str, str]:
    """Texts by class name; a line ``== NAME`` begins each."""
    parts = re.split(r"^== (\w+)\n", PAGES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.rstrip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_the_text_of_every_error_is_pinned(kind: type[BisectOnnxError]):
    assert kind in EXAMPLES, f"add an example of {kind.__name__} here and its page to {PAGES.name}"

    assert str(EXAMPLES[kind]) == pinned_pages().get(kind.__name__)


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_every_error_says_what_where_expected_got_and_next(kind: type[BisectOnnxError]):
    what, *rows = str(EXAMPLES[kind]).splitlines()

    assert what
    assert [row[:12].strip() for row in rows] == ["where:", "expected:", "got:", "next:"]
    assert all(row[12:].strip() for row in rows)


def test_no_page_outlives_its_class():
    assert sorted(pinned_pages()) == [kind.__name__ for kind in RAISED]


def test_the_tree_at_the_top_of_the_module_is_the_tree_of_classes():
    def drawn(kind: type[BisectOnnxError], indent: str = "") -> Iterator[str]:
        children = kind.__subclasses__()
        for child in children:
            status = f" ({child.exit_code})" if kind is BisectOnnxError else ""
            yield f"{indent}+── {child.__name__}{status}"
            yield from drawn(child, indent + ("    " if child is children[-1] else "│   "))

    written = [
        re.sub(r"([├└]── .*?)  .*", r"\1", line).replace("├", "+").replace("└", "+")
        for line in (errors.__doc__ or "").splitlines()
        if "── " in line
    ]

    assert sorted(written) == sorted(drawn(BisectOnnxError))


def test_only_statuses_of_the_contract_leave_the_program():
    assert {kind.exit_code for kind in RAISED} == {2, 3}

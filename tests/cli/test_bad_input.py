"""What a user can get wrong, through the real command line: one message, its exit status, no traceback."""

import dataclasses
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bisect_onnx.cli import app

WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)
X = np.ones((1, 3), np.float32)
SCALE = np.full(3, 2, np.float32)

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2))

    def forward(self, x, scale):
        return x * scale @ self.weight

def build():
    return Net()

def raises():
    raise FileNotFoundError("no such file: 'best.pt'")

def interrupted():
    raise KeyboardInterrupt

def returns_list():
    return [Net()]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a model, its reference and feeds that agree; it is the current one."""
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "scale"], ["scaled"], name="scaling"),
            helper.make_node("MatMul", ["scaled", "weight"], ["y"], name="product"),
        ],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("scale", TensorProto.FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(WEIGHT, "weight")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    (tmp_path / "net.py").write_text(NET)
    np.savez(tmp_path / "feeds.npz", x=X, scale=SCALE)
    monkeypatch.chdir(tmp_path)
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if name.startswith("_bisect_onnx_"):
            del sys.modules[name]


@dataclasses.dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


@pytest.fixture
def locate(folder: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs ``locate`` on the folder's files unless others are named; paths are shown relative to it."""

    def call(
        *options: str, model: str = "m.onnx", reference: str = "net.py:build", inputs: str | None = "feeds.npz"
    ) -> Ended:
        feeds = () if inputs is None else ("--inputs", inputs)
        status = app.run(["locate", model, "--reference", reference, *feeds, *options])
        out, err = capfd.readouterr()
        return Ended(status, out, err.replace(f"{folder.resolve()}/", ""))

    return call


def expect(ended: Ended, status: int, message: str) -> None:
    """The message is the end of stderr, stdout is empty, and nothing looks like a traceback."""
    assert "Traceback" not in ended.err
    assert ended.err[ended.err.index("error: ") :] == textwrap.dedent(message).lstrip("\n")
    assert (ended.status, ended.out) == (status, "")


def test_what_the_faults_below_are_faults_of_is_healthy(locate):
    assert locate("--quiet").status == 0


# --- the model


def test_a_missing_model(locate):
    expect(
        locate(model="n.onnx"),
        2,
        """
        error: the model 'n.onnx' does not exist
          where:    n.onnx
          expected: an ONNX file
          got:      no such file
          next:     check the path
        """,
    )


def test_a_truncated_model(locate, folder):
    data = (folder / "m.onnx").read_bytes()
    (folder / "m.onnx").write_bytes(data[:100])

    expect(
        locate(),
        2,
        """
        error: 'm.onnx' is not a readable ONNX model
          where:    m.onnx
          expected: a ModelProto with at least one node or output
          got:      100 bytes that do not parse (cut short, or another format)
          next:     export or copy the file again
        """,
    )


def test_a_file_that_is_no_onnx_file(locate, folder):
    (folder / "m.onnx").write_text("<html>404 Not Found</html>")

    expect(
        locate(),
        2,
        """
        error: 'm.onnx' is not a readable ONNX model
          where:    m.onnx
          expected: a ModelProto with at least one node or output
          got:      26 bytes that do not parse (cut short, or another format)
          next:     export or copy the file again
        """,
    )


# --- the reference


def test_a_reference_that_does_not_import(locate, folder):
    (folder / "net.py").write_text("import torch\nimport timmm\n")

    expect(
        locate(),
        2,
        """
        error: the reference 'net.py:build' does not import
          where:    net.py, line 2: import timmm
          expected: a module that imports without an error
          got:      ModuleNotFoundError: No module named 'timmm'
          next:     install 'timmm', or run bisect-onnx in the environment where the model runs
        """,
    )


def test_a_reference_that_is_not_there(locate):
    expect(
        locate(reference="nett.py:build"),
        2,
        """
        error: the reference 'nett.py:build' does not exist
          where:    nett.py
          expected: path/to/file.py:factory, package.module:factory, model.pt2, a TorchScript archive, other.onnx or \
activations.npz
          got:      no such file
          next:     did you mean 'net.py'?
        """,
    )


def test_a_factory_that_is_not_there(locate):
    expect(
        locate(reference="net.py:biuld"),
        2,
        """
        error: the reference 'net.py:biuld' names a factory that does not exist
          where:    net.py
          expected: a function, class or module object called 'biuld'
          got:      it defines 'Net', 'build', 'interrupted', 'raises', 'returns_list'
          next:     did you mean 'build'?
        """,
    )


def test_a_factory_that_raises(locate):
    line = NET.splitlines().index("""    raise FileNotFoundError("no such file: 'best.pt'")""") + 1

    expect(
        locate(reference="net.py:raises"),
        2,
        f"""
        error: the factory of the reference 'net.py:raises' raised an error
          where:    net.py, line {line}: raise FileNotFoundError("no such file: 'best.pt'")
          expected: called without arguments, it returns an nn.Module, or a tuple (nn.Module, example inputs)
          got:      FileNotFoundError: no such file: 'best.pt'
          next:     run the factory on its own in Python until it returns the module
        """,
    )


def test_a_factory_that_returns_something_else(locate):
    expect(
        locate(reference="net.py:returns_list"),
        2,
        """
        error: the factory of the reference 'net.py:returns_list' returned something else than a module
          where:    net.py:returns_list
          expected: an nn.Module, or a tuple (nn.Module, example inputs)
          got:      an object of type list
          next:     return the module itself; weights can be given apart with --weights FILE
        """,
    )


# --- the checkpoint


def save(path: Path, content: object) -> None:
    import torch

    torch.save(content, path)


def weight(*shape: int) -> object:
    import torch

    return torch.ones(shape)


def test_checkpoint_keys_that_do_not_match(locate, folder):
    save(folder / "best.pt", {"wait": weight(3, 2)})

    expect(
        locate("--weights", "best.pt"),
        2,
        """
        error: the checkpoint 'best.pt' does not fit the module Net
          where:    best.pt
          expected: the keys of the module's state dict (1), shapes equal
          got:      0 of them match; 1 missing from the file: 'weight'; 1 unknown to the module: 'wait'
          next:     build the module with the options that the checkpoint was trained with
        """,
    )


def test_checkpoint_keys_with_the_prefix_of_a_wrapper(locate, folder):
    save(folder / "best.pt", {"module.weight": weight(3, 2)})

    expect(
        locate("--weights", "best.pt"),
        2,
        """
        error: the checkpoint 'best.pt' does not fit the module Net
          where:    best.pt
          expected: the keys of the module's state dict (1), shapes equal
          got:      0 of them match; 1 missing from the file: 'weight'; 1 unknown to the module: 'module.weight'
          next:     every key in the file begins with 'module.'; save it without: \
{k.removeprefix('module.'): v for k, v in state.items()}
        """,
    )


def test_checkpoint_shapes_that_do_not_match(locate, folder):
    save(folder / "best.pt", {"weight": weight(2, 3)})

    expect(
        locate("--weights", "best.pt"),
        2,
        """
        error: the checkpoint 'best.pt' does not fit the module Net
          where:    best.pt
          expected: the keys of the module's state dict (1), shapes equal
          got:      0 of them match; 1 of another shape: weight: the module has (3, 2), the file (2, 3)
          next:     build the module with the options that the checkpoint was trained with
        """,
    )


def test_a_checkpoint_that_needs_pickle(locate, folder):
    save(folder / "best.pt", {"state_dict": {"weight": weight(3, 2)}, "folder": Path()})

    expect(
        locate("--weights", "best.pt"),
        2,
        f"""
        error: the checkpoint 'best.pt' holds more than tensors, and loading it could run code from the file
          where:    best.pt
          expected: a file that torch.load(weights_only=True) accepts
          got:      an object of pathlib.{type(Path()).__name__}
          next:     save module.state_dict() alone, or add --unsafe-load if you trust the file
        """,
    )


# --- the feeds


def test_feeds_without_an_input(locate, folder):
    np.savez(folder / "feeds.npz", x=X)

    expect(
        locate(),
        2,
        """
        error: the feeds do not name the model's inputs
          where:    feeds.npz
          expected: one array for each of 'x', 'scale'
          got:      missing 'scale'
          next:     add 'scale' to the feeds
        """,
    )


def test_feeds_with_an_extra_array(locate, folder):
    np.savez(folder / "feeds.npz", x=X, scale=SCALE, mask=X)

    expect(
        locate(),
        2,
        """
        error: the feeds do not name the model's inputs
          where:    feeds.npz
          expected: one array for each of 'x', 'scale'
          got:      unknown 'mask'
          next:     remove 'mask' from the feeds
        """,
    )


def test_feeds_with_a_misnamed_array(locate, folder):
    np.savez(folder / "feeds.npz", x=X, sclae=SCALE)

    expect(
        locate(),
        2,
        """
        error: the feeds do not name the model's inputs
          where:    feeds.npz
          expected: one array for each of 'x', 'scale'
          got:      missing 'scale'; unknown 'sclae'
          next:     rename 'sclae' to 'scale'
        """,
    )


def test_a_feed_of_the_wrong_shape(locate, folder):
    np.savez(folder / "feeds.npz", x=np.ones((1, 4), np.float32), scale=SCALE)

    expect(
        locate(),
        2,
        """
        error: the input 'x' has the wrong shape: axis 1 has length 4, and the file fixes 3
          where:    feeds.npz
          expected: float32[batch, 3]
          got:      float32[1, 4]
          next:     give an array of the expected shape; named axes may have any length
        """,
    )


def test_a_feed_of_the_wrong_dtype(locate, folder):
    np.savez(folder / "feeds.npz", x=X.astype(np.float64), scale=SCALE)

    expect(
        locate(),
        2,
        """
        error: the input 'x' has the wrong dtype
          where:    feeds.npz
          expected: float32
          got:      float64
          next:     cast it where you make it, e.g. array.astype('float32'); nothing is cast silently
        """,
    )


def test_feeds_that_need_pickle(locate, folder):
    np.savez(folder / "feeds.npz", x=np.array([None]), scale=SCALE)

    expect(
        locate(),
        2,
        """
        error: the feeds need pickle, which could run code from the file
          where:    feeds.npz
          expected: arrays or tensors of numbers, bools or strings
          got:      'x' is an array of Python objects
          next:     save each input as one plain array, e.g. np.savez('feeds.npz', x=np.stack(parts))
        """,
    )


def test_a_zero_size_input(locate, folder):
    np.savez(folder / "feeds.npz", x=np.ones((0, 3), np.float32), scale=SCALE)

    expect(
        locate(),
        2,
        """
        error: the input 'x' is empty
          where:    feeds.npz
          expected: at least one element on every axis, so that there is something to compare
          got:      shape (0, 3): axis 0 has length 0
          next:     give an input with a length of 1 or more there
        """,
    )


def test_a_shape_for_an_input_that_is_not_there(locate):
    expect(
        locate("--shape", "image=1,3", inputs=None),
        2,
        """
        error: --shape for 'image' cannot be used
          where:    --shape
          expected: one of the inputs 'x', 'scale'
          got:      'image'
          next:     name an input of the ONNX file
        """,
    )


# --- the run and its outputs


def test_an_unknown_provider(locate):
    ended = locate("--provider", "cudaa")

    assert (ended.status, ended.out) == (2, "")
    assert "error: the execution provider 'cudaa' is not in this build of ONNX Runtime\n" in ended.err
    assert "  got:      'cudaa'\n" in ended.err
    assert "Traceback" not in ended.err


def test_an_output_path_that_cannot_be_written(locate, folder):
    ended = locate("--json", "missing/report.json")

    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: --json cannot write 'report.json'\n")
    assert not (folder / "missing").exists()


def test_ctrl_c_writes_nothing(locate, folder):
    before = sorted(folder.iterdir())

    ended = locate("--json", "report.json", reference="net.py:interrupted")

    assert (ended.status, ended.out) == (130, "")
    assert ended.err.endswith("interrupted: no report was made and nothing was written\n")
    assert "Traceback" not in ended.err
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == before

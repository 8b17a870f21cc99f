"""REF in every form it may have, and every way in which it may be wrong."""

import inspect
import pickle
import random
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bisect_onnx.errors import (
    FactoryFailedError,
    FactoryNotFoundError,
    FactoryResultError,
    OpeningError,
    ReferenceFormError,
    ReferenceImportError,
    ReferenceNotFoundError,
    ReferenceUnreadableError,
    WeightsFormatError,
    WeightsMismatchError,
    WeightsNeedPickleError,
    WeightsNotApplicableError,
    WeightsNotFoundError,
    WeightsUnreadableError,
)
from bisect_onnx.pipeline.opening import OpenedReference, open_reference

MODEL = """
import dataclasses
import torch
from layers import width

print("imported")

@dataclasses.dataclass
class Options:
    size: "int" = width

class Net(torch.nn.Module):
    def __init__(self, size=width):
        super().__init__()
        self.head = torch.nn.Linear(size, 2)

    def forward(self, x, mask=None):
        return self.head(x)

class Needy(torch.nn.Module):
    def __init__(self, size):
        super().__init__()

class Stateful(torch.nn.Module):
    def forward(self, x, state):
        return x + state[0] * state[1]

def build():
    print("built")
    return Net(Options().size)

def with_inputs():
    return Net(), torch.ones(1, width)

def with_states():
    return Stateful(), (torch.ones(1), (torch.ones(1), torch.zeros(1)))

def late_import():
    import more_layers
    return more_layers.Net()

def forgets_return():
    Net()

def gives_class():
    return Net

def gives_state_dict():
    return Net().state_dict()

def gives_triple():
    return Net(), 1, 2

def raises():
    return inner()

def inner():
    raise ValueError("no checkpoint given")

def leaves():
    raise SystemExit(0)

class Zoo:
    build = staticmethod(build)

net = Net()
table = {"a": 1}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a model file and a module of its own beside it."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "layers.py").write_text("width = 4\n")
    (tmp_path / "more_layers.py").write_text("from model import Net\n")
    return tmp_path


@pytest.fixture(autouse=True)
def clean_modules():
    """Modules named like those of the project must not leak between tests."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in {"model", "layers", "more_layers", "shop", "shop.nets"} or name.startswith("_bisect_onnx_"):
            del sys.modules[name]


def run(opened: OpenedReference, **feeds: object) -> Any:
    (output,) = opened.reference.run({name: np.asarray(value, np.float32) for name, value in feeds.items()}).values()
    return output


def message(kind: type[Exception], ref: object, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        open_reference(ref, **options)
    return str(caught.value)


def legacy_state() -> list[int]:
    return list(np.random.get_state(legacy=False)["state"]["key"])  # noqa: NPY002  # the user's code may use it


@pytest.mark.parametrize("name", ["build", "Net", "net", "Zoo.build"])
def test_a_function_a_class_and_a_module_object_are_references(project, name):
    opened = open_reference(f"{project}/model.py:{name}")

    assert type(opened.module).__name__ == "Net"
    assert opened.call_order == ("x", "mask")
    assert opened.required_inputs == ("x",)
    assert run(opened, x=np.ones((1, 4))).shape == (1, 2)


def test_what_user_code_prints_never_reaches_stdout(project, capsys):
    open_reference(f"{project}/model.py:build")

    assert capsys.readouterr() == ("", "imported\nbuilt\n")


def test_the_files_folder_is_on_the_path_for_import_and_factory_and_then_no_more(project):
    path = list(sys.path)

    opened = open_reference(f"{project}/model.py:late_import")

    assert type(opened.module).__name__ == "Net"
    assert sys.path == path


def test_the_path_is_put_back_when_the_factory_raises(project):
    path = list(sys.path)

    message(FactoryFailedError, f"{project}/model.py:raises")

    assert sys.path == path


def test_a_class_from_the_file_can_be_pickled_and_its_source_read(project):
    module = open_reference(f"{project}/model.py:build").module

    assert type(pickle.loads(pickle.dumps(module))) is type(module)
    assert inspect.getsource(type(module)).startswith("class Net(")


def test_two_files_of_one_name_keep_their_own_neighbours(project, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.py").write_text(MODEL)
    (other / "layers.py").write_text("width = 7\n")

    first = open_reference(f"{project}/model.py:build")
    second = open_reference(f"{other}/model.py:build")
    again = open_reference(f"{project}/model.py:build")

    widths = [opened.module.head.in_features for opened in (first, second, again)]
    assert widths == [4, 7, 4]


def test_a_package_is_found_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "nets.py").write_text("import torch\ndef build():\n    return torch.nn.Linear(3, 1)\n")
    monkeypatch.chdir(tmp_path)

    opened = open_reference("shop.nets:build")

    assert opened.call_order == ("input",)


def test_example_inputs_come_along(project):
    opened = open_reference(f"{project}/model.py:with_inputs")

    assert isinstance(opened.example_inputs, torch.Tensor)


def test_nested_example_inputs_are_named_by_where_they_are(project):
    opened = open_reference(f"{project}/model.py:with_states")

    assert opened.call_order == ("x", "state.0", "state.1")
    assert run(opened, **{"x": [1], "state.0": [2], "state.1": [3]}) == [7]


def test_the_factory_is_seeded_and_leaves_the_callers_random_state_alone(project):
    states = (torch.get_rng_state(), random.getstate(), legacy_state())

    first = open_reference(f"{project}/model.py:build")
    second = open_reference(f"{project}/model.py:build")

    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert legacy_state() == states[2]
    for name, array in first.reference.parameters.items():
        np.testing.assert_array_equal(array, second.reference.parameters[name])


def test_models_in_memory_are_references():
    linear = torch.nn.Linear(3, 1)

    def double(x, y=None):
        return x * 2

    assert open_reference(linear).module is linear
    assert open_reference(double).call_order == ("x", "y")
    assert run(open_reference(double), x=[1, 2]).tolist() == [2, 4]


def test_a_callers_nested_inputs_shape_the_call():
    class Stateful(torch.nn.Module):
        def forward(self, x, state, scale=1):
            return x + state[0] * state[1] * scale

    inputs = (torch.ones(1), (torch.ones(1), torch.ones(1)), 5)

    opened = open_reference(Stateful(), inputs=inputs)

    assert opened.leaves is not None
    assert list(opened.leaves) == ["x", "state.0", "state.1"]
    assert run(opened, **{"x": [1], "state.0": [2], "state.1": [3]}) == [31]


# --- what may be wrong with REF


def test_a_missing_file_is_said_with_names_that_are_like_it(project):
    assert message(ReferenceNotFoundError, f"{project}/modle.py:build") == (
        f"the reference '{project}/modle.py:build' does not exist\n"
        f"  where:    {project}/modle.py\n"
        "  expected: path/to/file.py:factory, package.module:factory, model.pt2, a TorchScript archive, other.onnx or "
        "activations.npz\n"
        "  got:      no such file\n"
        "  next:     did you mean 'model.py'?"
    )


def test_a_missing_package_is_said_with_the_folder_that_was_searched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    text = message(ReferenceNotFoundError, "nowhere.nets:build")

    assert f"where:    module 'nowhere.nets', looked for in {tmp_path}" in text
    assert "got:      no module named 'nowhere'" in text


def test_a_file_without_a_factory_offers_those_in_it(project):
    text = message(ReferenceFormError, f"{project}/model.py")

    assert "got:      a Python file without ':NAME'; it offers 'build', 'with_inputs', 'with_states'" in text
    assert f"next:     name what returns the module, e.g. {project}/model.py:build" in text


def test_a_misspelt_factory_offers_the_nearest(project):
    text = message(FactoryNotFoundError, f"{project}/model.py:biuld")

    assert text.endswith("next:     did you mean 'build'?")
    assert "'Needy', 'Net'" in text
    assert "dataclasses" not in text


@pytest.mark.parametrize(
    ("source", "where", "got", "step"),
    [
        ("\nimport timmm\n", "line 2: import timmm", "ModuleNotFoundError: No module named 'timmm'", "install"),
        ("x = 1\ndef f(:\n", "line 2: def f(:", "SyntaxError: invalid syntax", "import the file in Python"),
        ("raise RuntimeError('no GPU')\n", "line 1: raise", "RuntimeError: no GPU", "import the file in Python"),
        ("from . import x\n", "line 1: from . import x", "ImportError: attempted relative", "package.module:factory"),
        ("exit(1)\n", "line 1: exit(1)", "SystemExit: the code ends the program with status 1", "__main__"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_import_is_quoted(tmp_path, source, where, got, step):
    (tmp_path / "broken.py").write_text(source)

    text = message(ReferenceImportError, f"{tmp_path}/broken.py:build")

    assert f"where:    {tmp_path}/broken.py, {where}" in text
    assert f"got:      {got}" in text
    assert step in text.splitlines()[-1]


def test_a_fault_in_a_neighbour_is_quoted_where_it_is(project):
    (project / "layers.py").write_text("\n\nwidth = 1 / 0\n")

    text = message(ReferenceImportError, f"{project}/model.py:build")

    assert f"where:    {project}/layers.py, line 3: width = 1 / 0" in text


def test_a_factory_that_raises_is_quoted(project):
    line = MODEL.splitlines().index('    raise ValueError("no checkpoint given")') + 1

    assert message(FactoryFailedError, f"{project}/model.py:raises") == (
        f"the factory of the reference '{project}/model.py:raises' raised an error\n"
        f'  where:    {project}/model.py, line {line}: raise ValueError("no checkpoint given")\n'
        "  expected: called without arguments, it returns an nn.Module, or a tuple (nn.Module, example inputs)\n"
        "  got:      ValueError: no checkpoint given\n"
        "  next:     run the factory on its own in Python until it returns the module"
    )


def test_a_factory_that_ends_the_program_does_not_end_ours(project):
    assert "SystemExit: the code ends the program" in message(FactoryFailedError, f"{project}/model.py:leaves")


def test_a_class_that_needs_arguments_is_a_factory_that_raises(project):
    text = message(FactoryFailedError, f"{project}/model.py:Needy")

    assert "missing 1 required positional argument: 'size'" in text


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("forgets_return", "None: the function has no return statement, or returned nothing"),
        ("gives_class", "the class Net itself, not an instance: write Net()"),
        ("gives_state_dict", "a dict with 2 keys; a state dict is given with --weights FILE beside the factory"),
        ("gives_triple", "a tuple of 3 (Net, int, int)"),
        ("table", "a dict with 1 keys; a state dict is given with --weights FILE beside the factory"),
    ],
)
def test_a_factory_that_returns_something_else_is_told_what(project, name, got):
    assert f"got:      {got}\n" in message(FactoryResultError, f"{project}/model.py:{name}")


def test_ctrl_c_in_the_users_code_is_not_an_error_of_theirs(tmp_path):
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")

    with pytest.raises(KeyboardInterrupt):
        open_reference(f"{tmp_path}/slow.py:build")


def test_a_checkpoint_given_as_the_model_is_recognised(tmp_path):
    torch.save(torch.nn.Linear(3, 1).state_dict(), tmp_path / "best.pt")

    text = message(ReferenceFormError, f"{tmp_path}/best.pt")

    assert "got:      a checkpoint written by torch.save" in text
    assert "--reference file.py:factory --weights best.pt" in text


@pytest.mark.parametrize("name", ["model.pt2", "model.pt"])
def test_a_damaged_model_file_is_unreadable(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 cut off")

    assert "that are no complete zip file" in message(ReferenceUnreadableError, tmp_path / name)


@pytest.mark.parametrize("ref", ["model.h5", "folder", 3, torch.nn.Linear])
def test_other_things_are_no_reference(tmp_path, monkeypatch, ref):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.h5").write_bytes(b"x")
    (tmp_path / "folder").mkdir()

    message(ReferenceFormError, ref)


def test_every_fault_of_ref_is_bad_usage():
    assert OpeningError.exit_code == 2


# --- the checkpoint


TAKEN = "the state dict was taken from '{}' in best.pt"


@pytest.fixture
def states(tmp_path: Path) -> dict[str, torch.Tensor]:
    return {"head.weight": torch.full((2, 4), 0.5), "head.bias": torch.zeros(2)}


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (lambda s: s, ()),
        (lambda s: {"state_dict": s, "epoch": 3}, (TAKEN.format("state_dict") + ", which also holds 'epoch'",)),
        (lambda s: {"model": s}, (TAKEN.format("model"),)),
        (lambda s: {k: v.half() for k, v in s.items()}, ("2 tensors of best.pt were converted to the module's dtype",)),
    ],
)  # fmt: skip
def test_a_checkpoint_is_loaded_from_where_training_scripts_put_it(project, states, content, note):
    torch.save(content(states), project / "best.pt")

    opened = open_reference(f"{project}/model.py:build", weights=project / "best.pt")

    assert run(opened, x=np.ones((1, 4))).tolist() == [[2, 2]]
    assert opened.notes == note


def test_safetensors_are_loaded(project, states):
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(states, project / "best.safetensors")

    opened = open_reference(f"{project}/model.py:build", weights=project / "best.safetensors")

    assert run(opened, x=np.ones((1, 4))).tolist() == [[2, 2]]


def test_a_callers_module_and_the_users_module_object_stay_as_they_are(project, states):
    torch.save(states, project / "best.pt")
    mine = torch.nn.Sequential()
    mine.add_module("head", torch.nn.Linear(4, 2))
    before = {name: value.clone() for name, value in mine.state_dict().items()}

    opened = open_reference(mine, weights=project / "best.pt")

    assert opened.module is not mine
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())
    loaded = open_reference(f"{project}/model.py:net", weights=project / "best.pt").module
    user_module = sys.modules[type(loaded).__module__]
    assert loaded is not user_module.net


def test_keys_that_do_not_match_are_counted_and_listed(project, states):
    states["neck.weight"] = states.pop("head.weight")
    torch.save(states, project / "best.pt")

    assert message(WeightsMismatchError, f"{project}/model.py:build", weights=project / "best.pt") == (
        "the checkpoint 'best.pt' does not fit the module Net\n"
        f"  where:    {project}/best.pt\n"
        "  expected: the keys of the module's state dict (2), shapes equal\n"
        "  got:      1 of them match; 1 missing from the file: 'head.weight'; 1 unknown to the module: 'neck.weight'\n"
        "  next:     build the module with the options that the checkpoint was trained with"
    )


def test_another_shape_is_told(project, states):
    torch.save({**states, "head.bias": torch.zeros(3)}, project / "best.pt")

    text = message(WeightsMismatchError, f"{project}/model.py:build", weights=project / "best.pt")

    assert "1 of another shape: head.bias: the module has (2,), the file (3,)" in text


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod."])
def test_a_wrappers_prefix_is_recognised_and_not_stripped_silently(project, states, prefix):
    torch.save({prefix + key: value for key, value in states.items()}, project / "best.pt")

    text = message(WeightsMismatchError, f"{project}/model.py:build", weights=project / "best.pt")

    assert f"every key in the file begins with '{prefix}'" in text


def test_a_pickle_that_needs_more_names_the_class_and_the_switch(project, states):
    torch.save({"state_dict": states, "args": Namespace(lr=1)}, project / "best.pt")

    text = message(WeightsNeedPickleError, f"{project}/model.py:build", weights=project / "best.pt")

    assert "got:      an object of argparse.Namespace" in text
    assert "add --unsafe-load if you trust the file" in text
    opened = open_reference(f"{project}/model.py:build", weights=project / "best.pt", unsafe_load=True)
    assert run(opened, x=np.ones((1, 4))).tolist() == [[2, 2]]


def test_other_faults_of_a_checkpoint(project, states):
    ref = f"{project}/model.py:build"
    torch.save([1, 2], project / "list.pt")
    torch.save({"epoch": 3, "optimizer": {}}, project / "empty.pt")
    torch.save(states, project / "cut.pt")
    (project / "cut.pt").write_bytes((project / "cut.pt").read_bytes()[:300])
    (project / "text.pt").write_text("not a checkpoint")

    assert "got:      no such file" in message(WeightsNotFoundError, ref, weights=project / "no.pt")
    assert "got:      a folder" in message(WeightsNotFoundError, ref, weights=project)
    assert "got:      an object of list" in message(WeightsFormatError, ref, weights=project / "list.pt")
    assert "a mapping with 'epoch', 'optimizer'" in message(WeightsFormatError, ref, weights=project / "empty.pt")
    message(WeightsUnreadableError, ref, weights=project / "cut.pt")
    message(WeightsUnreadableError, ref, weights=project / "text.pt")
    message(WeightsNotApplicableError, lambda x: x, weights=project / "list.pt")

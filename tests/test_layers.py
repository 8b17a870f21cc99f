"""The layer check fires on each broken rule and stays silent on what is allowed."""

import ast
import shutil
from pathlib import Path

import pytest

from scripts import check_layers


def package(folder: Path, path: str, text: str) -> Path:
    """A package of one file, made anew by each call."""
    root = folder / "bisect_onnx"
    shutil.rmtree(root, ignore_errors=True)
    file = root / path
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    return root


def found(folder: Path, path: str, text: str) -> list[check_layers.Violation]:
    return check_layers.check_package(package(folder, path, text))


def violations(folder: Path, path: str, text: str) -> list[str]:
    return [str(violation) for violation in found(folder, path, text)]


def test_the_package_keeps_its_own_rules():
    root = Path(check_layers.__file__).parents[1] / "bisect_onnx"

    assert [str(violation) for violation in check_layers.check_package(root)] == []


@pytest.mark.parametrize("layer", ["readers", "runtimes", "align", "rules", "render"])
def test_a_middle_layer_sees_core_and_errors(tmp_path, layer):
    text = "from bisect_onnx.core.graph import Graph\nfrom bisect_onnx import errors\nimport numpy\n"

    assert violations(tmp_path, f"{layer}/x.py", text) == []


@pytest.mark.parametrize(
    ("importer", "target", "sees"),
    [
        ("errors", "core", "nothing of the package"),
        ("core", "readers", "errors"),
        ("readers", "runtimes", "core, errors"),
        ("runtimes", "align", "core, errors, readers"),
        ("align", "rules", "core, errors"),
        ("rules", "runtimes", "core, errors"),
        ("render", "pipeline", "core, errors"),
        ("pipeline", "render", "align, core, errors, readers, rules, runtimes"),
        ("tui", "runtimes", "core, errors, pipeline, render"),
        ("cli", "runtimes", "core, errors, pipeline, render, tui"),
    ],
)
def test_a_layer_must_not_import_what_it_does_not_see(tmp_path, importer, target, sees):
    file = "errors.py" if importer == "errors" else f"{importer}/x.py"
    text = f"import os\nfrom bisect_onnx.{target}.y import z\n"

    assert violations(tmp_path, file, text) == [
        f"bisect_onnx/{file}:2: layer: {importer} must not import {target}; it sees {sees}"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import bisect_onnx.pipeline.locate\n",
        "import bisect_onnx.pipeline.locate as locate\n",
        "from bisect_onnx import pipeline\n",
        "from bisect_onnx.pipeline import locate\n",
        "from ..pipeline import locate\n",
        "from .. import pipeline\n",
        "def f():\n    from bisect_onnx import pipeline\n",
        "import importlib\nimportlib.import_module('bisect_onnx.pipeline.locate')\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bisect_onnx import pipeline\n",
    ],
)
def test_every_way_to_import_counts(tmp_path, text):
    [violation] = found(tmp_path, "render/x.py", text)

    assert (violation.rule, violation.line) == ("layer", text.count("\n"))


def test_a_relative_import_within_a_layer_is_no_layer_violation(tmp_path):
    assert violations(tmp_path, "rules/operator/x.py", "from ..base import Rule\nfrom . import y\n") == []


def test_nothing_imports_the_command_line_but_the_module_that_starts_it(tmp_path):
    start = "from bisect_onnx.cli.app import main\n"

    assert violations(tmp_path, "__main__.py", start) == []
    assert violations(tmp_path, "pipeline/x.py", start) == [
        "bisect_onnx/pipeline/x.py:1: layer: nothing imports cli, pipeline does"
    ]


def test_public_names_are_not_a_way_around_the_layers(tmp_path):
    assert violations(tmp_path, "render/x.py", "from bisect_onnx import __version__\n") == []
    [violation] = violations(tmp_path, "align/x.py", "from bisect_onnx import locate\n")
    assert violation == (
        "bisect_onnx/align/x.py:1: layer: align must not import bisect_onnx.locate; "
        "name the module that defines what is wanted"
    )


def test_the_public_names_come_from_the_use_cases(tmp_path):
    assert violations(tmp_path, "__init__.py", "from bisect_onnx.pipeline.locate import locate\n") == []
    [violation] = violations(tmp_path, "__init__.py", "from bisect_onnx.runtimes.ort import Ort\n")
    assert violation == (
        "bisect_onnx/__init__.py:1: layer: the package's __init__ must not import runtimes; "
        "it sees core, errors, pipeline"
    )


def test_a_folder_that_is_no_layer_is_refused(tmp_path):
    [violation] = violations(tmp_path, "extras/x.py", "")
    assert violation == (
        "bisect_onnx/extras/x.py:1: layer: 'extras' is not a layer; the layers are "
        "align, cli, core, errors, pipeline, readers, render, rules, runtimes, tui"
    )


def test_core_sees_the_standard_library_and_numpy(tmp_path):
    assert violations(tmp_path, "core/x.py", "import math\nimport numpy as np\nimport ml_dtypes\n") == []
    assert violations(tmp_path, "core/x.py", "import onnx\n") == [
        "bisect_onnx/core/x.py:1: foreign: core must not import onnx; it sees the standard library, ml_dtypes, numpy"
    ]


def test_errors_sees_the_standard_library_only(tmp_path):
    assert violations(tmp_path, "errors.py", "import numpy\n") == [
        "bisect_onnx/errors.py:1: foreign: errors must not import numpy; it sees the standard library"
    ]


@pytest.mark.parametrize(
    "file", ["readers/torch_export.py", "runtimes/torch_eager.py", "runtimes/eager/torch_hooks.py"]
)
def test_torch_adapters_import_torch(tmp_path, file):
    assert violations(tmp_path, file, "import torch\nfrom torch import nn\n") == []


@pytest.mark.parametrize("file", ["runtimes/ort.py", "pipeline/torch_x.py", "rules/x.py", "render/x.py", "cli/x.py"])
def test_no_other_file_imports_torch(tmp_path, file):
    assert violations(tmp_path, file, "import torch.nn\n") == [
        f"bisect_onnx/{file}:1: torch: torch is imported in readers/torch_*.py and runtimes/torch_*.py only"
    ]


def test_only_runtimes_import_onnxruntime(tmp_path):
    assert violations(tmp_path, "runtimes/ort.py", "import onnxruntime as ort\n") == []
    assert violations(tmp_path, "pipeline/x.py", "import onnxruntime as ort\n") == [
        "bisect_onnx/pipeline/x.py:1: onnxruntime: onnxruntime is imported in runtimes/ only"
    ]


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "misc"])
def test_a_module_is_named_for_what_is_in_it(tmp_path, name):
    message = f"name: a module called {name!r} says nothing about what is in it"

    assert violations(tmp_path / "module", f"core/{name}.py", "") == [f"bisect_onnx/core/{name}.py:1: {message}"]
    assert violations(tmp_path / "folder", f"core/{name}/x.py", "") == [f"bisect_onnx/core/{name}/x.py:1: {message}"]


def test_print_is_refused_and_the_method_of_a_console_is_not(tmp_path):
    assert violations(tmp_path, "render/x.py", "console.print('a')\ntext = 'print()'\n") == []
    [violation] = violations(tmp_path, "render/x.py", "\nprint('a')\n")
    assert violation == (
        "bisect_onnx/render/x.py:2: print: print writes to stdout behind the renderer's back; "
        "write to the stream you were given"
    )


@pytest.mark.parametrize(
    "text",
    [
        "np.allclose(a, b)\n",
        "same = numpy.isclose\n",
        "from numpy import allclose\n",
        "a.allclose(b)\n",
        "from numpy import isclose as near\n",
    ],
)
def test_comparing_by_broadcasting_is_refused(tmp_path, text):
    [violation] = found(tmp_path, "align/x.py", text)

    assert violation.rule == "allclose"


def test_math_isclose_is_allowed_because_numbers_do_not_broadcast(tmp_path):
    assert violations(tmp_path, "align/x.py", "import math\nfrom math import isclose\nmath.isclose(1, 2)\n") == []


def test_a_file_that_cannot_be_parsed_is_a_violation(tmp_path):
    assert violations(tmp_path, "core/x.py", "\ndef\n") == [
        "bisect_onnx/core/x.py:2: syntax: cannot be parsed: invalid syntax (<unknown>, line 2)"
    ]


def test_every_layer_in_the_table_is_known_to_the_table():
    for sees in check_layers.SEES.values():
        assert sees <= set(check_layers.SEES)


def test_every_exception_for_torch_has_a_file_that_imports_it():
    root = Path(check_layers.__file__).parents[1] / "bisect_onnx"
    for path in check_layers.TORCH_EXCEPTIONS:
        module = check_layers.Module(
            path=Path(path), shown=path, tree=ast.parse((root / path).read_text(encoding="utf-8"))
        )
        assert "torch" in {imported.top for imported in check_layers.imports(module)}


def test_the_exit_status_tells_clean_from_broken_from_nothing_to_check(tmp_path, capsys):
    clean = package(tmp_path / "clean", "core/x.py", "import math\n")
    broken = package(tmp_path / "broken", "core/x.py", "import torch\n")
    empty = tmp_path / "empty"

    assert check_layers.main([str(clean)]) == 0
    assert check_layers.main([str(broken)]) == 1
    assert check_layers.main([str(empty)]) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith("bisect_onnx/core/x.py:1: foreign: ")
    assert shown.err == f"check_layers: no Python files below {empty}; give the package's folder\n"

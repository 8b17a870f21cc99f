"""The candidate runs as configured, and every configuration that cannot be is refused with a reason."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from bisect_onnx.errors import (
    CustomOpsError,
    FeedNamesError,
    ModelNotLoadedError,
    OptimizationLevelError,
    ProviderNotGrantedError,
    SessionOptionValueError,
    UnknownProviderError,
    UnknownSessionOptionError,
)
from bisect_onnx.readers.onnx_file import read
from bisect_onnx.runtimes.ort import OrtCandidate
from bisect_onnx.runtimes.ort_session import first_line
from tests.onnx_models import mixed_net, random, save, value

IMAGE = random((1, 3, 8, 8))


def candidate(path: Path, **options: Any) -> OrtCandidate:
    defaults = {"providers": ["cpu"], "level": 99, "session_options": {}, "custom_ops": ()}
    return OrtCandidate(read(path), **{**defaults, **options})


def test_the_untouched_file_is_run_at_the_level_asked_for(tmp_path: Path) -> None:
    optimised = tmp_path / "optimised.onnx"
    path = mixed_net(tmp_path / "m.onnx")

    outputs = candidate(path, session_options={"optimized_model_filepath": str(optimised)}).run({"x": IMAGE})

    plain = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = dict(zip(("silu", "mean"), plain.run(None, {"x": IMAGE}), strict=True))
    assert {name: array.tobytes() for name, array in outputs.items()} == {n: a.tobytes() for n, a in expected.items()}
    assert "QuickGelu" in {node.op_type for node in onnx.load(optimised).graph.node}


def test_feeds_that_the_model_does_not_know_are_ignored_and_missing_ones_named(tmp_path: Path) -> None:
    model = candidate(mixed_net(tmp_path / "m.onnx"))

    assert set(model.run({"x": IMAGE, "other": IMAGE})) == {"silu", "mean"}
    with pytest.raises(FeedNamesError) as caught:
        model.run({"other": IMAGE})

    assert "missing 'x'" in str(caught.value)


def test_an_initializer_that_is_also_an_input_can_be_fed(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    inputs = [value("x", [2]), value("w", [2])]
    path = save(tmp_path / "m.onnx", [node], inputs=inputs, outputs=["y"], weights={"w": np.ones(2, np.float32)})
    model = candidate(path)
    x, w = np.zeros(2, np.float32), np.full(2, 5, np.float32)

    assert model.run({"x": x})["y"].tolist() == model.probe({"x": x}, fetch=["y"], cuts={})["y"].tolist() == [1, 1]
    assert model.run({"x": x, "w": w})["y"].tolist() == [5, 5]
    assert model.probe({"x": x, "w": w}, fetch=["y"], cuts={})["y"].tolist() == [5, 5]


def test_a_model_that_the_runtime_refuses_is_named_with_its_first_line(tmp_path: Path) -> None:
    node = helper.make_node("Silu", ["x"], ["y"], name="act", domain="com.microsoft")
    model = candidate(save(tmp_path / "m.onnx", [node], inputs=[value("x", [2])], outputs=["y"]), level=1)

    with pytest.raises(ModelNotLoadedError) as caught:
        model.run({"x": random((2,))})

    assert str(caught.value) == (
        "ONNX Runtime cannot load 'm.onnx'\n"
        f"  where:    {tmp_path}/m.onnx (CPUExecutionProvider, level 1)\n"
        "  expected: a model that this runtime starts\n"
        f"  got:      {caught.value.detail}\n"
        "  next:     see the node it names; --level 0 and --provider cpu tell whether the configuration matters"
    )
    assert "com.microsoft:Silu" in caught.value.detail
    assert "\n" not in caught.value.detail


def test_a_provider_that_the_build_lacks_is_an_error_with_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(UnknownProviderError) as caught:
        candidate(mixed_net(tmp_path / "m.onnx"), providers=["coreml"])

    available = ", ".join(repr(name) for name in ort.get_available_providers())
    assert str(caught.value) == (
        "the execution provider 'CoreMLExecutionProvider' is not in this build of ONNX Runtime\n"
        "  where:    --provider\n"
        f"  expected: one of {available}\n"
        "  got:      'CoreMLExecutionProvider'\n"
        "  next:     name one of those (short: cpu, cuda, tensorrt, openvino, coreml, dml, rocm), "
        "or install the build that has it"
    )


def test_a_provider_that_the_session_does_not_get_is_an_error_and_no_quiet_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort.InferenceSession, "get_providers", lambda _: ["CPUExecutionProvider"])
    available = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: available)
    # What the runtime does on a machine without a GPU: it warns in its log, and takes the CPU.
    monkeypatch.setattr("onnxruntime.capi.onnxruntime_inference_collection.check_and_normalize_provider_args", fallback)
    model = candidate(mixed_net(tmp_path / "m.onnx"), providers=["cuda"])

    with pytest.raises(ProviderNotGrantedError) as caught:
        model.run({"x": IMAGE})

    assert str(caught.value) == (
        "ONNX Runtime did not give the session 'CUDAExecutionProvider'\n"
        "  where:    --provider\n"
        "  expected: CUDAExecutionProvider\n"
        "  got:      'CPUExecutionProvider'\n"
        "  next:     check that its device and libraries are on this machine, or use --provider cpu"
    )


def fallback(*_: object) -> tuple[list[str], list[Mapping[str, str]]]:
    return ["CPUExecutionProvider"], [{}]


def test_a_requested_gpu_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        pytest.skip("this build knows no CUDA")
    model = candidate(mixed_net(tmp_path / "m.onnx"), providers=["cuda"])
    try:
        model.run({"x": IMAGE})
    except ProviderNotGrantedError as error:
        refused = str(error)
    else:
        pytest.skip("this machine has the GPU")

    assert "did not give the session 'CUDAExecutionProvider'" in refused


def test_an_unknown_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptimizationLevelError) as caught:
        candidate(mixed_net(tmp_path / "m.onnx"), level=7)

    assert "expected: 0 (none), 1 (basic), 2 (extended), 3 (layout) or 99 (all)\n  got:      7" in str(caught.value)


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("intra_op_num_threads", "two", "an integer of 0 or more"),
        ("intra_op_num_threads", "-1", "an integer of 0 or more"),
        ("enable_mem_pattern", "maybe", "true or false"),
        ("execution_mode", "fast", "sequential or parallel"),
    ],
)
def test_a_session_option_with_an_impossible_value_is_refused(
    tmp_path: Path, option: str, text: str, expected: str
) -> None:
    with pytest.raises(SessionOptionValueError) as caught:
        candidate(mixed_net(tmp_path / "m.onnx"), session_options={option: text})

    assert f"the session option {option!r} cannot be {text!r}" in str(caught.value)
    assert f"expected: {expected}\n" in str(caught.value)


def test_an_unknown_session_option_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownSessionOptionError) as caught:
        candidate(mixed_net(tmp_path / "m.onnx"), session_options={"intra_threads": "1"})

    assert "expected: one of enable_cpu_mem_arena, enable_mem_pattern, " in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"intra_op_num_threads": "1", "inter_op_num_threads": "1", "execution_mode": "parallel"},
        {"enable_mem_pattern": "false", "enable_cpu_mem_arena": "0", "log_severity_level": "3"},
        {"session.disable_prepacking": "1", "session.set_denormal_as_zero": "1"},
    ],
)
def test_known_session_options_are_accepted(tmp_path: Path, options: Mapping[str, str]) -> None:
    outputs = candidate(mixed_net(tmp_path / "m.onnx"), session_options=options).run({"x": IMAGE})

    assert set(outputs) == {"silu", "mean"}


def test_operator_libraries_that_do_not_load_are_named(tmp_path: Path) -> None:
    path = mixed_net(tmp_path / "m.onnx")
    (tmp_path / "ops.so").write_bytes(b"not a library")

    with pytest.raises(CustomOpsError) as missing:
        candidate(path, custom_ops=[tmp_path / "none.so"])
    with pytest.raises(CustomOpsError) as broken:
        candidate(path, custom_ops=[tmp_path / "ops.so"])

    assert "got:      no such file" in str(missing.value)
    assert "the custom operator library 'ops.so' does not load" in str(broken.value)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("[ONNXRuntimeError] : 1 : FAIL : Load model failed: a : b\nmore", "Load model failed: a : b"),
        ("/src/core/x.cc:729 void ns::F(A&, const B&) Please install it", "Please install it"),
        ("/src/core/x.cc:12 void ns::G() const status was false", "status was false"),
        ("plain", "plain"),
    ],
)
def test_the_first_line_is_what_the_runtime_says_without_codes_and_places(message: str, line: str) -> None:
    assert first_line(RuntimeError(message)) == line


def test_a_users_own_choice_of_spinning_is_set_without_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    candidate(mixed_net(tmp_path / "m.onnx"), session_options={"session.intra_op.allow_spinning": "1"}).run(
        {"x": IMAGE}
    )

    assert capfd.readouterr() == ("", "")

"""A report's environment: plain, repeatable, and without anything that names the user's machine."""

import json
import platform

import pytest

from bisect_onnx.pipeline.environment import cpu_model, describe_environment


def test_the_environment_is_plain_data_and_repeats():
    first, second = (describe_environment(providers=("CPUExecutionProvider",), level=0) for _ in range(2))

    assert json.loads(json.dumps(first)) == first == second
    assert first["providers"] == ["CPUExecutionProvider"]
    assert first["level"] == 0


def test_the_environment_does_not_name_the_machine():
    text = json.dumps(describe_environment(providers=(), level=99))

    assert platform.node()
    assert f'"{platform.node()}"' not in text


def test_variables_that_change_sums_are_kept(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)

    variables = describe_environment(providers=(), level=0)["variables"]

    assert isinstance(variables, dict)
    assert variables["OMP_NUM_THREADS"] == "3"
    assert "MKL_NUM_THREADS" not in variables


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Some CPU @ 2GHz\n", "Some CPU @ 2GHz"),
        ("processor\t: 0\nModel\t\t: Some Board\n", "Some Board"),
    ],
)
def test_the_processor_is_named_as_the_kernel_names_it(tmp_path, text, name):
    (tmp_path / "cpuinfo").write_text(text)

    assert cpu_model(tmp_path / "cpuinfo") == name


def test_a_system_without_cpuinfo_has_its_own_answer_or_none(tmp_path):
    assert cpu_model(tmp_path / "nothing") == (platform.processor() or None)

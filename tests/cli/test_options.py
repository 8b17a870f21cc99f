"""Every option reaches the request; what cannot be meant ends with status 2 and says what was expected."""

from pathlib import Path
from typing import get_args

import pytest

from bisect_onnx.cli import options
from bisect_onnx.core.compare import ErrorStats
from bisect_onnx.pipeline.request import LocateRequest


def test_without_options_the_request_has_its_own_defaults(locate, fake):
    locate()

    assert fake.request == LocateRequest(candidate=Path("m.onnx"), reference="net.py:build")


def test_every_option_reaches_the_request(locate, fake):
    arguments = (
        "-i feeds.npz -i more.npz --samples --module a.b --weights w.pt --unsafe-load --seed 7 --shape a=1,3 "
        "--shape b= --provider cuda --provider cpu "
        "--level 1 --session-option intra_op_num_threads=1 --session-option k=a=b --custom-ops l.so "
        "--candidate-values v.npz "
        "--strategy bisect --atol 1e-3 --rtol 1e-2 --metric snr_db --threshold 60 --max-memory 512MiB"
    )

    locate(*arguments.split())

    assert fake.request == LocateRequest(
        candidate=Path("m.onnx"),
        reference="net.py:build",
        inputs=[Path("feeds.npz"), Path("more.npz")],
        samples=True,
        module="a.b",
        weights=Path("w.pt"),
        unsafe_load=True,
        seed=7,
        shapes={"a": (1, 3), "b": ()},
        providers=("cuda", "cpu"),
        level=1,
        session_options={"intra_op_num_threads": "1", "k": "a=b"},
        custom_ops=(Path("l.so"),),
        candidate_values=Path("v.npz"),
        strategy="bisect",
        atol=1e-3,
        rtol=1e-2,
        metric="snr_db",
        threshold=60.0,
        max_memory=512 * 2**20,
    )


def test_an_input_name_may_hold_an_equals_sign():
    assert options.parse_shapes(["a=b=1,2"]) == {"a=b": (1, 2)}


@pytest.mark.parametrize(
    ("text", "size"), [("100", 100), ("1KB", 1000), ("1 kib", 1024), ("1.5GiB", 1610612736), (None, None)]
)
def test_memory_is_said_in_bytes_or_with_a_unit(text, size):
    assert options.parse_bytes(text) == size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "a"], "Invalid value for --shape: 'a' is not NAME=LENGTH,LENGTH,... as in image=1,3,224,224"),
        (
            ["--shape", "a=1,-3"],
            "Invalid value for --shape: 'a=1,-3' is not NAME=LENGTH,LENGTH,... as in image=1,3,224,224",
        ),
        (["--shape", "=1"], "Invalid value for --shape: '=1' is not NAME=LENGTH,LENGTH,... as in image=1,3,224,224"),
        (["--shape", "a=1", "--shape", "a=2"], "Invalid value for --shape: 'a' is given twice"),
        (["--session-option", "a"], "Invalid value for --session-option: 'a' is not KEY=VALUE"),
        (
            ["--session-option", "a=1", "--session-option", "a=2"],
            "Invalid value for --session-option: 'a' is given twice",
        ),
        (
            ["--max-memory", "lots"],
            "Invalid value for --max-memory: 'lots' is no amount of memory such as 512MiB or 2GiB",
        ),
        (["--max-memory", "0"], "Invalid value for --max-memory: '0' is no amount of memory such as 512MiB or 2GiB"),
        (["--metric", "cosine"], "Invalid value for --metric: --metric and --threshold go together"),
        (["--threshold", "1"], "Invalid value for --metric: --metric and --threshold go together"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(locate, fake, arguments, message):
    ended = locate(*arguments)

    assert (ended.status, ended.out) == (2, "")
    assert ended.err == f"error: {message}\n  next:     see 'bisect-onnx locate --help'\n"
    assert fake.requests == []


@pytest.mark.parametrize(
    "arguments",
    [["--seed", "-1"], ["--atol", "-1"], ["--top", "0"], ["--strategy", "guess"], ["--metric", "x"], ["--nonsense"]],
)
def test_what_typer_refuses_is_bad_usage_too(locate, fake, arguments):
    ended = locate(*arguments)

    assert (ended.status, ended.out, fake.requests) == (2, "", [])
    assert ended.err.startswith("error: ")
    assert ended.err.endswith("\n  next:     see 'bisect-onnx locate --help'\n")


def test_an_unknown_level_is_refused(locate):
    ended = locate("--level", "4")

    assert ended.status == 2
    assert ended.err == (
        "error: ONNX Runtime has no optimisation level 4\n"
        "  where:    --level\n"
        "  expected: 0 (none), 1 (basic), 2 (extended), 3 (layout) or 99 (all)\n"
        "  got:      4\n"
        "  next:     use one of those\n"
    )


def test_the_metrics_offered_are_figures_that_a_comparison_has():
    literal = get_args(get_args(options.Metric)[0])[0]

    assert set(get_args(literal)) <= set(ErrorStats.__dataclass_fields__)

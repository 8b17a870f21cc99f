"""The commands that a report advises: pasted, they ask what they say."""

import dataclasses
import shlex
from pathlib import Path

import pytest

from bisect_onnx.pipeline.commands import as_command
from bisect_onnx.pipeline.request import LocateRequest

PLAIN = LocateRequest(candidate=Path("m.onnx"), reference="net.py:build")
FULL = LocateRequest(
    candidate=Path("my model.onnx"),
    reference="net.py:build",
    inputs=Path("feeds 1.npz"),
    module="layers.0",
    weights=Path("w.pt"),
    unsafe_load=True,
    seed=3,
    shapes={"image": (1, 3, 8, 8), "scale": ()},
    providers=("cuda", "cpu"),
    level=2,
    session_options={"intra_op_num_threads": "1"},
    custom_ops=(Path("ops.so"),),
    strategy="bisect",
    rtol=1e-3,
    metric="snr_db",
    threshold=60.0,
    max_memory=1 << 20,
)


SAMPLES = dataclasses.replace(PLAIN, inputs=[Path("a.npz"), Path("b 2.npz")], samples=True)


@pytest.mark.parametrize("request_", [PLAIN, FULL, SAMPLES], ids=["plain", "full", "samples"])
def test_a_pasted_command_asks_the_same(request_, bisect_onnx, fake):
    program, *arguments = shlex.split(as_command(request_))

    assert program == "bisect-onnx"
    bisect_onnx(*arguments)
    assert fake.request == request_


def test_a_pasted_command_asks_what_was_changed(bisect_onnx, fake):
    bisect_onnx(*shlex.split(as_command(FULL, level=99, providers=("cpu",), metric=None, threshold=None, atol=0.5))[1:])

    assert fake.request == dataclasses.replace(
        FULL, level=99, providers=("cpu",), metric=None, threshold=None, atol=0.5
    )


def test_what_is_at_its_default_is_left_out_unless_it_was_changed():
    assert as_command(PLAIN) == "bisect-onnx locate m.onnx --reference net.py:build"
    assert as_command(PLAIN, level=0) == "bisect-onnx locate m.onnx --reference net.py:build --level 0"


def test_a_model_in_memory_is_asked_about_in_python():
    request = dataclasses.replace(FULL, reference=object(), inputs={"x": [1]}, shapes={})

    assert as_command(request, level=0) == (
        "bisect_onnx.locate(model, 'my model.onnx', inputs, module='layers.0', weights='w.pt', unsafe_load=True, "
        "seed=3, providers=['cuda', 'cpu'], level=0, session_options={'intra_op_num_threads': '1'}, "
        "custom_ops=['ops.so'], strategy='bisect', rtol=0.001, metric='snr_db', threshold=60.0, max_memory=1048576)"
    )
    assert as_command(dataclasses.replace(SAMPLES, reference=object())) == (
        "bisect_onnx.locate(model, 'm.onnx', ['a.npz', 'b 2.npz'], samples=True)"
    )
    assert as_command(dataclasses.replace(PLAIN, inputs={"x": [1]})) == (
        "bisect_onnx.locate('net.py:build', 'm.onnx', inputs)"
    )

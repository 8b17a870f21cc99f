"""What else one could have run on the same machine and fault: Polygraphy, and PyTorch's own verifier."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import fx

import bisect_onnx
from bisect_onnx.core.compare import Array
from fixtures.export import quiet
from scripts.bench_arithmetic import Span, Stopwatch, ratio, table
from scripts.bench_models import Exported

__all__ = ["against_polygraphy", "against_verifier"]

LEAST_OVER_POLYGRAPHY: Final = 5.0
LEAST_OVER_VERIFIER: Final = 50.0

POLYGRAPHY: Final = "import sys; from polygraphy.tools import main; sys.argv[0] = 'polygraphy'; sys.exit(main())"


def against_polygraphy(model: Exported, *, scratch: Path, rounds: int) -> Iterator[str]:
    """Whole commands, both given the values that torch computed, recorded under the names in the file."""
    if importlib.util.find_spec("polygraphy") is None:
        yield "polygraphy: absent (pip install 'bisect-onnx[bench]'), not measured"
        return
    values = recorded_values(model)
    feeds, recording = scratch / "feeds.npz", scratch / "values.npz"
    np.savez(feeds, allow_pickle=False, **model.feeds)
    np.savez(recording, allow_pickle=False, **values)
    theirs = _polygraphy_command(model, values, scratch=scratch)
    ours = [sys.executable, "-m", "bisect_onnx", "locate", str(model.faulty), "--reference", str(recording)]
    ours += ["--inputs", str(feeds), "--strategy", "scan"]
    pairs = []
    for _ in range(rounds):
        watch = Stopwatch()
        with watch.timing("bisect-onnx locate, given the values"):
            answer = _run(ours)
        with watch.timing("polygraphy run, given the values"):
            said = _run(theirs)
        ours_span, theirs_span = watch.spans.values()
        pairs.append((_wall(theirs_span), _wall(ours_span)))
        yield from table(watch.spans)
    yield f"  bisect-onnx (status {answer.returncode}): {answer.stdout.partition(chr(10))[0]}"
    yield f"  polygraphy (status {said.returncode}): {len((said.stdout + said.stderr).splitlines())} lines"
    title = f"{model.name}: polygraphy over locate, whole commands"
    yield ratio(title, pairs, limit=LEAST_OVER_POLYGRAPHY, at_least=True).told()


def against_verifier(model: Exported) -> Iterator[str]:
    """Both in this process, once: the verifier starts a session for each node."""
    if importlib.util.find_spec("torch.onnx.verification") is None:
        yield "torch.onnx.verification: absent, not measured"
        return
    import onnx
    import onnx_ir
    import onnxruntime
    from torch.onnx import ONNXProgram, verification

    onnxruntime.set_default_logger_severity(4)  # each of its sessions asks for CUDA first, and complains where none is
    program = ONNXProgram(onnx_ir.from_proto(onnx.load(model.faulty)), _program(model))
    watch = Stopwatch()
    with watch.timing("locate"):
        bisect_onnx.locate(model.module, model.faulty, dict(model.inputs), strategy="scan")
    with watch.timing("verify_onnx_program"), quiet():
        verification.verify_onnx_program(program, args=tuple(model.inputs.values()), compare_intermediates=True)
    yield from table(watch.spans)
    pair = (watch.spans["verify_onnx_program"], watch.spans["locate"])
    title = f"{model.name}: verify_onnx_program over locate, in process"
    yield ratio(title, [pair], limit=LEAST_OVER_VERIFIER, at_least=True).told()


def _program(model: Exported) -> torch.export.ExportedProgram:
    """The exported program as the exporter decomposed it, whose nodes are called as the values in the file."""
    with quiet(), torch.no_grad():
        program = torch.onnx.export(model.module, tuple(model.inputs.values()), dynamo=True, verbose=False)
    assert program is not None
    assert program.exported_program is not None
    return program.exported_program


def recorded_values(model: Exported) -> dict[str, Array]:
    """What torch computes at each value that the file has too."""
    import onnx

    file = onnx.load(model.healthy, load_external_data=False).graph
    there = {name for node in file.node for name in node.output}
    found: dict[str, Array] = {}

    class Recording(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n.name in there and isinstance(result, torch.Tensor):
                found[n.name] = result.detach().numpy().copy()
            return result

    program = _program(model)
    with torch.no_grad():
        Recording(program.module()).run(*model.inputs.values())
        outputs = model.module(*model.inputs.values())
    listed = outputs if isinstance(outputs, tuple) else (outputs,)
    found |= {value.name: array.numpy() for value, array in zip(file.output, listed, strict=True)}
    return found


def _polygraphy_command(model: Exported, values: Mapping[str, Array], *, scratch: Path) -> list[str]:
    from polygraphy.comparator import IterationResult, RunResults
    from polygraphy.json import save_json

    results = RunResults()
    results.append(("torch", [IterationResult(outputs=dict(values), runner_name="torch")]))
    results.save(str(scratch / "torch.json"))
    save_json([model.feeds], str(scratch / "feeds.json"))
    return [
        sys.executable, "-c", POLYGRAPHY, "run", str(model.faulty), "--onnxrt", "--onnx-outputs", "mark", "all",
        "--fail-fast", "--load-inputs", str(scratch / "feeds.json"), "--load-outputs", str(scratch / "torch.json"),
    ]  # fmt: skip


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _wall(span: Span) -> Span:
    """The processor's seconds of another process are not known here."""
    return Span(wall=span.wall, cpu=0.0)

"""The fixture nets export faithfully, and each kind of fault is a real fault at the place it names."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from bisect_onnx.core.report import MissingOperation
from fixtures.effect import counts, moves_outputs, outputs, scaled
from fixtures.export import export, exported
from fixtures.faults import FAULTS, Planted
from fixtures.nets import NETS
from fixtures.sample import faults_of_net
from fixtures.strip import strip
from fixtures.trial import Outcome, Prepared, Trial, Variant, judged
from tests.report_builders import CASES

Array = np.ndarray[Any, np.dtype[Any]]
FILES = [(net, exporter) for net in NETS for exporter in NETS[net].exporters]
# At most this many scaled errors apart; the largest of all healthy exports is 6e-6, grid sampling.
HEALTHY = 1e-4


@pytest.fixture(params=FILES, ids="-".join)
def file(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@functools.cache
def feeds_of(net: str) -> Mapping[str, Array]:
    _, inputs = NETS[net].build(0)
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def model_of(file: tuple[str, str], folder: Path) -> onnx.ModelProto:
    net, exporter = file
    return onnx.load(exported(net, exporter, 0, folder))


def leaves(value: object) -> Iterator[Array]:
    if isinstance(value, torch.Tensor):
        yield value.numpy()
    elif isinstance(value, dict):
        for entry in value.values():
            yield from leaves(entry)
    else:
        assert isinstance(value, tuple | list)
        for entry in value:
            yield from leaves(entry)


def all_values(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Every result of every node."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    known = {value.name for value in opened.graph.output}
    names = [name for node in opened.graph.node for name in node.output if name and name not in known]
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = outputs(opened, feeds)
    return dict(zip([value.name for value in opened.graph.output], found, strict=True))


@pytest.mark.slow
def test_a_healthy_export_computes_what_torch_computes(file: tuple[str, str], export_folder: Path):
    net, exporter = file
    module, inputs = NETS[net].build(0)
    with torch.no_grad():
        wanted = list(leaves(module(*inputs.values())))
    path = exported(net, exporter, 0, export_folder)
    onnx.checker.check_model(onnx.load(path))
    default = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, dict(feeds_of(net)))

    for found in (outputs(onnx.load(path), feeds_of(net)), default):
        assert max(scaled(*pair) for pair in zip(wanted, found, strict=True)) < HEALTHY


@pytest.mark.slow
def test_a_stripped_file_computes_the_same_bits_without_names(file: tuple[str, str], export_folder: Path):
    model = model_of(file, export_folder)

    bare = strip(model)

    onnx.checker.check_model(bare)
    assert [node.op_type for node in bare.graph.node] == [node.op_type for node in model.graph.node]
    pairs = zip(outputs(model, feeds_of(file[0])), outputs(bare, feeds_of(file[0])), strict=True)
    assert all(np.array_equal(before, after, equal_nan=True) for before, after in pairs)
    public = {value.name for value in (*model.graph.input, *model.graph.output)}
    inner = {name for node in bare.graph.node for name in (*node.input, *node.output)} - public - {""}
    assert all(name.startswith("v") and name[1:].isdigit() for name in inner)
    assert not any(node.name or node.doc_string or node.metadata_props for node in bare.graph.node)
    assert not any((bare.metadata_props, bare.graph.metadata_props, bare.graph.value_info, bare.producer_name))


@pytest.mark.slow
def test_a_fault_is_first_seen_at_the_node_it_names(file: tuple[str, str], export_folder: Path):
    model, feeds = model_of(file, export_folder), feeds_of(file[0])
    healthy = all_values(model, feeds)
    kinds = sorted(kind for kind in FAULTS if FAULTS[kind].culprit)
    share = kinds[NETS[file[0]].exporters.index(file[1]) :: 2]  # the other exporter's file gets the other half
    planted = [FAULTS[kind].plant(model, 0) for kind in share]
    applied = [fault for fault in planted if fault is not None]

    assert len(applied) >= 6
    for fault in applied:
        onnx.checker.check_model(fault.model)
        observed = all_values(fault.model, feeds)
        for index, node in enumerate(fault.model.graph.node):
            same = all(
                name not in healthy or np.array_equal(healthy[name], observed[name], equal_nan=True)
                for name in node.output
                if name
            )
            if not same and node.op_type != "Constant":  # the guilty one is the reader of a constant
                assert index in fault.nodes, fault.description
                break


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_each_kind_of_fault_moves_an_output_of_some_net(kind: str, export_folder: Path):
    for file in FILES:
        model = model_of(file, export_folder)
        fault = FAULTS[kind].plant(model, 1)
        if fault is not None:
            onnx.checker.check_model(fault.model)
            if counts(moves_outputs(model, fault.model, feeds_of(file[0]))):
                assert bool(fault.nodes) == FAULTS[kind].culprit
                return
    pytest.fail(f"{kind} is seen in no net")


@pytest.mark.slow
def test_every_net_shows_eight_kinds_of_fault(file: tuple[str, str], export_folder: Path):
    model, feeds = model_of(file, export_folder), feeds_of(file[0])
    healthy = outputs(model, feeds)
    seen: list[str] = []
    for kind, fault in FAULTS.items():
        planted = fault.plant(model, 2) if fault.culprit and len(seen) < 8 else None
        if planted is not None:
            moved = [scaled(*pair) for pair in zip(healthy, outputs(planted.model, feeds), strict=True)]
            seen += [kind] if counts(max(moved)) else []

    assert len(seen) == 8


@pytest.mark.slow
def test_the_seed_decides_where_a_fault_lands_and_the_model_stays_as_it_was(export_folder: Path):
    model = model_of(("detector", "torchscript"), export_folder)
    before = model.SerializeToString()

    first, again = FAULTS["weight_stale"].plant(model, 3), FAULTS["weight_stale"].plant(model, 3)
    others = [FAULTS["weight_stale"].plant(model, seed) for seed in range(8)]

    assert first is not None
    assert first == again
    assert len({other.nodes for other in others if other is not None}) > 2
    assert model.SerializeToString() == before


def chain(*nodes: onnx.NodeProto, **initializers: Array) -> onnx.ModelProto:
    """A model from ``x`` to ``y``, both of shape (2, 2)."""
    graph = helper.make_graph(
        list(nodes),
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [onnx.numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_fault_in_a_shared_weight_spares_the_other_readers():
    weight = np.array([[1.0, 2.5], [3.5, 4.0]], dtype=np.float32)
    model = chain(
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"]), w=weight
    )

    planted = FAULTS["weight_transposed"].plant(model, 0)

    assert planted is not None
    (guilty,) = planted.nodes
    graph = planted.model.graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    np.testing.assert_array_equal(stored[graph.node[guilty].input[1]], weight.T)
    np.testing.assert_array_equal(stored[graph.node[1 - guilty].input[1]], weight)


def test_a_quick_gelu_takes_the_place_of_both_nodes_of_a_silu():
    model = chain(
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Sigmoid", ["n"], ["s"]),
        helper.make_node("Mul", ["n", "s"], ["m"]),
        helper.make_node("Neg", ["m"], ["y"]),
    )

    planted = FAULTS["silu_to_quick_gelu"].plant(model, 0)

    assert planted is not None
    assert planted.nodes == (1,)
    assert [node.op_type for node in planted.model.graph.node] == ["Neg", "QuickGelu", "Neg"]
    x = np.array([[-1.0, 0.5], [2.0, 3.0]], dtype=np.float32)
    np.testing.assert_allclose(outputs(planted.model, {"x": x})[0], x / (1 + np.exp(1.702 * x)), rtol=1e-5)


def test_a_cast_pair_stands_behind_the_node_it_spoils():
    model = chain(helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Exp", ["n"], ["y"]))

    planted = [FAULTS["float16_round_trip"].plant(model, seed) for seed in range(6)]

    found = {(fault.nodes, tuple(node.op_type for node in fault.model.graph.node)) for fault in planted if fault}
    assert found == {((1, 2), ("Neg", "Cast", "Cast", "Exp")), ((2, 3), ("Neg", "Exp", "Cast", "Cast"))}


def test_nothing_is_planted_where_only_a_shape_is_computed():
    model = chain(
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Floor", ["f"], ["r"]),
        helper.make_node("Cast", ["r"], ["i"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "i"], ["y"]),
    )

    assert FAULTS["rounding"].plant(model, 0) is None


def test_a_skipped_node_leaves_its_operand_to_its_readers():
    model = chain(helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Exp", ["n"], ["y"]))

    planted = FAULTS["skipped"].plant(model, 0)

    assert planted is not None
    assert (planted.nodes, planted.missing_after) == ((), "x")
    assert [(node.op_type, *node.input) for node in planted.model.graph.node] == [("Exp", "x")]


def test_stripping_renames_inside_the_bodies_of_an_if():
    def branch(op_type: str) -> onnx.GraphProto:
        result = helper.make_tensor_value_info(f"{op_type}_out", TensorProto.FLOAT, [2, 2])
        node = helper.make_node(op_type, ["outer"], [f"{op_type}_out"], name=op_type)
        return helper.make_graph([node], op_type, [], [result])

    model = chain(
        helper.make_node("Neg", ["x"], ["outer"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch("Exp"), else_branch=branch("Neg")),
        yes=np.array(1, dtype=np.bool_),
    )
    x = np.array([[-1.0, 0.5], [2.0, 3.0]], dtype=np.float32)

    bare = strip(model)

    np.testing.assert_array_equal(outputs(bare, {"x": x})[0], outputs(model, {"x": x})[0])
    assert not any(word in str(bare) for word in ("outer", "Exp_out", "Neg_out", 'name: "Exp"', "yes"))


def test_building_a_net_repeats_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()

    module, inputs = NETS["residual"].build(5)
    again, inputs_again = NETS["residual"].build(5)
    other, _ = NETS["residual"].build(6)

    state, state_again, state_other = module.state_dict(), again.state_dict(), other.state_dict()
    assert all(torch.equal(state[name], state_again[name]) for name in state)
    assert all(torch.equal(inputs[name], inputs_again[name]) for name in inputs)
    assert not torch.equal(state["stem.weight"], state_other["stem.weight"])
    assert not module.training
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_dynamic_export_leaves_the_batch_open(exporter: str, tmp_path: Path):
    module, inputs = NETS["deep_stack"].build(0)
    model = onnx.load(export(module, inputs, tmp_path / "m.onnx", exporter=exporter, dynamic=True, opset=18))
    wider = {"features": torch.randn(7, 16, generator=torch.Generator().manual_seed(0))}

    with torch.no_grad():
        wanted = module(**wider).numpy()

    assert scaled(wanted, outputs(model, {"features": wider["features"].numpy()})[0]) < HEALTHY
    assert [entry.version for entry in model.opset_import] == [18]


def test_an_unknown_exporter_is_refused(tmp_path: Path):
    module, inputs = NETS["residual"].build(0)

    with pytest.raises(ValueError, match=r"^unknown exporter 'caffe'; expected 'dynamo' or 'torchscript'$"):
        export(module, inputs, tmp_path / "m.onnx", exporter="caffe")


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ([3.0, 4.0], [3.0, 4.5], 0.5 / 12.5**0.5),
        ([3.0, 4.0], [3.0], float("inf")),
        ([3.0, 4.0], [3.0, float("nan")], float("inf")),
        ([float("inf"), 4.0], [float("inf"), 4.0], 0.0),
        ([float("inf"), 4.0], [float("-inf"), 4.0], float("inf")),
    ],
)
def test_an_effect_is_the_largest_error_over_the_rms(wanted: list[float], found: list[float], expected: float):
    effect = scaled(np.array(wanted, dtype=np.float32), np.array(found, dtype=np.float32))

    assert effect == pytest.approx(expected, rel=1e-6)


def test_a_fault_counts_from_ten_floors_on():
    assert counts(1e-5, floor=0.0)
    assert not counts(9e-6, floor=0.0)
    assert not counts(1e-4, floor=2e-5)


def case_of(kind: str | None, nodes: tuple[int, ...]) -> Prepared:
    model = chain(helper.make_node("Neg", ["x"], ["y"]))
    planted = None if kind is None else Planted(model=model, kind=kind, nodes=nodes, description="made up")
    trial = Trial(net="residual", exporter="dynamo", variant=Variant.STRIPPED, kind=kind)
    return Prepared(trial=trial, model=model, feeds={}, planted=planted, guilty=nodes)


def test_an_answer_is_judged_by_the_node_it_accuses():
    located, parity = CASES["located"](), CASES["parity"]()
    assert located.culprit is not None
    guilty = located.culprit.index

    assert judged(case_of("activation", (guilty,)), located) is Outcome.RIGHT
    assert judged(case_of("float16_round_trip", (guilty - 1, guilty)), located) is Outcome.RIGHT
    assert judged(case_of("activation", (guilty + 1,)), located) is Outcome.WRONG
    assert judged(case_of("activation", (guilty,)), parity) is Outcome.SILENT
    assert judged(case_of("skipped", ()), located) is Outcome.WRONG
    assert judged(case_of(None, ()), parity) is Outcome.RIGHT
    assert judged(case_of(None, ()), located) is Outcome.WRONG


def test_a_guilty_node_that_is_only_named_in_the_group_is_told_apart():
    located = CASES["located"]()
    assert located.culprit is not None
    other = next(row for row in located.nodes if row.index == located.culprit.index - 1)
    culprit = dataclasses.replace(located.culprit, group=(located.culprit.node, other.node))
    grouped = dataclasses.replace(located, culprits=(culprit,))

    assert judged(case_of("activation", (other.index,)), grouped) is Outcome.GROUPED
    assert judged(case_of("activation", (other.index - 1,)), grouped) is Outcome.WRONG


def test_what_a_simplifier_took_out_beside_the_fault_is_rightly_called_missing():
    lacking = CASES["suspected"]()
    lost = MissingOperation(after="y", before="z", source=None)
    lacking = dataclasses.replace(lacking, culprits=(), missing_operation=lost)
    case = case_of("bias_lost", (0,))  # its node gives "y"
    slimmed = dataclasses.replace(case, trial=dataclasses.replace(case.trial, variant=Variant.ONNXSLIM))
    elsewhere = dataclasses.replace(lacking, missing_operation=dataclasses.replace(lost, after="w"))

    assert judged(slimmed, lacking) is Outcome.RIGHT
    assert judged(slimmed, elsewhere) is Outcome.WRONG
    assert judged(case, lacking) is Outcome.SILENT


@pytest.mark.slow
def test_a_sample_repeats_and_names_do_not_change_its_faults(export_folder: Path):
    def drawn(variant: Variant) -> list[tuple[str | None, tuple[int, ...]]]:
        cases = faults_of_net("mobile", folder=export_folder, seed=4, count=8, variant=variant)
        return [(case.trial.kind, case.planted.nodes) for case in cases if case.planted is not None]

    named = drawn(Variant.NAMED)

    assert len(dict(named)) == 8
    assert drawn(Variant.STRIPPED) == named
    assert drawn(Variant.NAMED) == named

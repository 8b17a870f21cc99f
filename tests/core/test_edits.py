"""Which other forms of a node are worth trying."""

import pytest

from bisect_onnx.core.edits import NodeEdit, variants
from bisect_onnx.core.graph import Node


def node(op_type: str, inputs: tuple[str, ...], **attributes: object) -> Node:
    return Node(index=3, name="n", op_type=op_type, inputs=inputs, outputs=("y",), attributes=attributes)


def test_operands_of_an_operator_with_an_order_are_swapped_first():
    assert next(variants(node("Sub", ("a", "b")))) == NodeEdit(index=3, order=(1, 0))


def test_a_commutative_operator_keeps_its_operands():
    assert all(edit.order is None for edit in variants(node("Add", ("a", "b"))))


def test_the_branches_of_a_where_are_swapped_and_its_condition_stays():
    assert [edit.order for edit in variants(node("Where", ("c", "a", "b")))] == [(0, 2, 1)]


@pytest.mark.parametrize(("parts", "orders"), [(1, 0), (2, 1), (3, 5), (4, 0)])
def test_parts_of_a_concat_are_tried_in_every_other_order_up_to_three(parts, orders):
    tried = list(variants(node("Concat", tuple("abcd"[:parts]), axis=1)))

    assert len(tried) == orders
    assert all(edit.order is not None and sorted(edit.order) == list(range(parts)) for edit in tried)


def test_fmod_of_a_mod_is_flipped_either_way():
    assert NodeEdit(index=3, attributes={"fmod": 0}) in list(variants(node("Mod", ("a", "b"), fmod=1)))
    assert NodeEdit(index=3, attributes={"fmod": 1}) in list(variants(node("Mod", ("a", "b"))))


def test_a_gelu_is_tried_in_its_other_form():
    assert next(variants(node("Gelu", ("a",), approximate="tanh"))).attributes == {"approximate": "none"}
    assert next(variants(node("Gelu", ("a",)))).attributes == {"approximate": "tanh"}


def test_an_activation_leaves_the_attributes_of_the_old_one_behind():
    edits = {edit.op_type: edit for edit in variants(node("LeakyRelu", ("a",), alpha=0.1))}

    assert edits["Relu"].attributes == {"alpha": None}
    assert "LeakyRelu" not in edits


def test_a_reduction_keeps_its_axes():
    assert [edit.attributes for edit in variants(node("ReduceMean", ("a",), keepdims=1))] == [{}, {}, {}]


def test_an_operator_of_a_foreign_domain_is_not_taken_for_a_standard_one():
    foreign = Node(index=0, name="n", op_type="Relu", domain="my.ops", inputs=("a",), outputs=("y",))

    assert list(variants(foreign)) == []


def test_edits_can_key_a_session():
    assert len({NodeEdit(index=1, attributes={"fmod": 1}), NodeEdit(index=1, attributes={"fmod": 1})}) == 1

"""A fault planted at a drawn node: that node is accused, with proof, and nobody else.

Each net gets eight kinds of fault, and each kind that accuses a node gets a net, in files of both exporters, with
names and without. The kinds were drawn once, from those that the net shows; the nodes are drawn by the seed. The
full matrix is scripts/campaign.
"""

from pathlib import Path

import pytest

from fixtures.nets import NETS
from fixtures.sample import BLAMABLE
from fixtures.trial import Trial, Variant, prepared
from tests.end_to_end.at_work import NAMES, assert_proven, file_of, labels, locate

SEED = 2
KINDS_PER_NET = 8

KINDS = {
    "resize": "bias_shifted weight_channel_scaled resize_cubic resize_coordinate weight_rolled resize_mode "
    "integer_round_trip weight_scaled",
    "detector": "bias_lost weight_stale operand_order reduction weight_int8 integer_round_trip conv_dilation "
    "weight_scaled",
    "prenorm": "gelu_approximate weight_channel_scaled norm_affine bias_lost weight_stale weight_transposed "
    "weight_rolled float16_round_trip",
    "postnorm": "bias_shifted bias_lost norm_affine bias_permuted scalar_constant weight_scaled activation "
    "weight_transposed",
    "recurrent": "bias_shifted norm_affine weight_rolled weight_scaled weight_channel_scaled norm_epsilon "
    "float16_round_trip weight_stale",
    "residual": "float16_round_trip weight_stale pool_kind rewired weight_scaled conv_dilation weight_int8 "
    "bias_shifted",
    "dict_outputs": "weight_channel_scaled activation float16_round_trip softmax_axis silu_to_quick_gelu "
    "weight_scaled conv_dilation weight_rolled",
    "shared": "norm_affine integer_round_trip gelu_approximate bias_shifted weight_channel_scaled weight_rolled "
    "float16_round_trip conv_dilation",
    "sampling": "weight_scaled weight_rolled pad_mode weight_stale transpose_perm activation_alpha norm_epsilon "
    "bias_lost",
    "integers": "weight_rolled bias_shifted mod_fmod extreme bias_lost weight_int8 weight_channel_scaled "
    "where_branches",
    "bert": "gemm_scale transpose_perm weight_transposed softmax_axis float16_round_trip bias_permuted "
    "norm_epsilon weight_channel_scaled",
    "gpt2": "bias_permuted bias_lost where_branches norm_affine integer_round_trip gemm_scale weight_rolled "
    "float16_round_trip",
    "activation_chain": "gelu_approximate weight_int8 where_branches weight_stale integer_round_trip activation "
    "bias_shifted activation_alpha",
    "llama_block": "weight_rolled integer_round_trip silu_to_quick_gelu weight_transposed weight_scaled "
    "concat_order weight_int8 arithmetic",
    "mobile": "bias_lost weight_channel_scaled arithmetic integer_round_trip weight_stale weight_int8 "
    "activation_alpha gemm_scale",
    "window": "softmax_axis bias_permuted weight_scaled rewired arithmetic slice_start weight_rolled activation",
    "wavenet": "weight_channel_scaled pad_value integer_round_trip weight_int8 weight_rolled weight_stale rewired "
    "bias_permuted",
    "deep_stack": "integer_round_trip weight_transposed bias_shifted weight_int8 rewired norm_affine "
    "silu_to_quick_gelu activation",
}

# What was drawn for no net above: each kind in one that shows it.
OTHER_KINDS = [
    ("resize", "dynamo", "resize_nearest"),
    ("resize", "torchscript", "conv_pads"),
    ("residual", "torchscript", "pool_pads"),
    ("residual", "torchscript", "pool_padding_counted"),
    ("residual", "torchscript", "batch_statistics"),
    ("sampling", "torchscript", "depth_to_space_mode"),
    ("sampling", "dynamo", "grid_sampling"),
    ("recurrent", "torchscript", "gru_reset_gate"),
    ("recurrent", "torchscript", "recurrent_direction"),
    ("recurrent", "dynamo", "gate_order"),
    ("integers", "dynamo", "cumsum_flags"),
    ("integers", "dynamo", "rounding"),
    ("integers", "torchscript", "fill_constant"),
    ("integers", "torchscript", "integer_constant"),
    ("detector", "torchscript", "topk_largest"),
    ("gpt2", "torchscript", "split_outputs"),
    ("gpt2", "dynamo", "power_exponent"),
    ("bert", "dynamo", "gather_index"),
    ("activation_chain", "dynamo", "clip_bound"),
    ("llama_block", "torchscript", "epsilon_constant"),
    ("prenorm", "dynamo", "mask_fill"),
]


def cases() -> list[tuple[str, str, str, str]]:
    """Net, exporter, names or none, kind: in each net, exporters by turns and names by twos."""
    drawn = [
        (net, NETS[net].exporters[number % len(NETS[net].exporters)], NAMES[number // 2 % 2], kind)
        for net, kinds in KINDS.items()
        for number, kind in enumerate(kinds.split())
    ]
    others = [(net, exporter, NAMES[number % 2], kind) for number, (net, exporter, kind) in enumerate(OTHER_KINDS)]
    return sorted(drawn + others, key=lambda case: list(NETS).index(case[0]))


def test_every_net_has_eight_kinds_and_every_kind_a_net():
    assert {net: len(set(kinds.split())) for net, kinds in KINDS.items()} == dict.fromkeys(NETS, KINDS_PER_NET)
    assert {kind for *_, kind in cases()} == set(BLAMABLE)


@pytest.mark.slow
@pytest.mark.parametrize(("net", "exporter", "names", "kind"), cases())
def test_the_planted_node_is_accused(
    net: str, exporter: str, names: str, kind: str, export_folder: Path, tmp_path: Path
):
    trial = Trial(net=net, exporter=exporter, variant=Variant(names), kind=kind, seed=SEED)
    case = prepared(trial, folder=export_folder)
    assert case is not None, f"{net} shows no {kind}: put another kind into the table"
    assert case.planted is not None

    report = locate(net, file_of(case.model, tmp_path / "m.onnx"))  # the case is stripped already

    assert_proven(report, labels(case.planted, names=names), planted=case.planted.description)

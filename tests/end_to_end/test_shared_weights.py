"""One layer called several times: weights say nothing about the place, and the fault is still found in its layer."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import helper, numpy_helper
from torch import nn

import bisect_onnx
from bisect_onnx.core.report import Status
from fixtures.export import export

pytestmark = pytest.mark.slow


class Albert(nn.Module):
    def __init__(self):
        super().__init__()
        config = transformers.AlbertConfig(
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=64,
            embedding_size=16,
        )
        self.core = transformers.AlbertModel(config)

    def forward(self, ids):
        return self.core(input_ids=ids).last_hidden_state


@pytest.mark.parametrize("where", [0.3, 0.5, 0.8])
def test_a_scaled_product_is_found_in_its_layer(where: float, tmp_path: Path):
    torch.manual_seed(1)
    module, inputs = Albert().eval(), {"ids": torch.randint(5, 90, (2, 12))}
    path = export(module, inputs, tmp_path / "m.onnx", exporter="dynamo")
    model = onnx.load(path)
    products = [place for place, node in enumerate(model.graph.node) if node.op_type == "MatMul"]
    place = products[int(len(products) * where)]
    product = model.graph.node[place]
    model.graph.initializer.append(numpy_helper.from_array(np.array(1.3, np.float32), "damage"))
    result = product.output[0]
    product.output[0] = f"{result}_before"
    damaged = helper.make_node("Mul", [f"{result}_before", "damage"], [result], name="damaged")
    model.graph.node.insert(place + 1, damaged)
    onnx.save(model, path)

    report = bisect_onnx.locate(module, path, inputs, level=0)

    assert report.status is Status.LOCATED, report.summary
    assert [culprit.node for culprit in report.culprits] == ["damaged"]

"""The optimisers of ONNX Runtime by name: which there are, at which level each lives, which this build has.

The runtime takes names to switch off and does not tell which it knows. The names and levels here are those that
ONNX Runtime 1.31 writes to its log while it applies them (severity INFO, "GraphTransformer NAME modified: ..."); the
rewrite rules inside its rule-based transformers, which the log does not name, are from `GenerateRewriteRules` in
`onnxruntime/core/optimizer/graph_transformer_utils.cc` and the constructor of each rule. Names of older releases are
kept: the list is cut to what the installed library holds.
"""

import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import onnxruntime as ort

__all__ = ["OPTIMIZERS", "RULES", "level_of", "names_up_to", "present"]

# Rewrite rules and transformers by the lowest level that runs them.
_LEVEL_1: Final = (
    "EliminateIdentity", "EliminateSlice", "UnsqueezeElimination", "EliminateDropout", "ExpandElimination",
    "CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion",
    "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion",
    "ConvBNFusion", "PadFusion", "MatMul_BatchNormalization_Fusion", "LabelEncoderFusion", "WhereDummyDq",
    "DoubleQDQPairsRemover", "ConstantSharing", "CommonSubexpressionElimination", "ConstantFolding",
    "ConstantFoldingDQ", "MatMulAddFusion", "ReshapeFusion", "FreeDimensionOverrideTransformer",
    "SliceConcatToSpaceToDepthFusion", "GeluFusion", "GeluFusionL1", "LayerNormFusion", "LayerNormFusionL1",
    "QDQPropagationTransformer", "WeightBiasQuantization", "EnsureUniqueDQForNodeUnit", "RocmBlasAltImpl",
    "TransposeOptimizer",
)  # fmt: skip
_LEVEL_2: Final = (
    "ClipQuantRewrite", "ReluQuantRewrite", "TransposeOptimizer_CPUExecutionProvider", "QDQS8ToU8Transformer",
    "QDQSelectorActionTransformer", "GemmActivationFusion", "MatMulIntegerToFloatFusion",
    "DynamicQuantizeMatMulFusion", "ConvActivationFusion", "GeluFusionL2", "LayerNormFusionL2",
    "SimplifiedLayerNormFusion", "AttentionFusion", "EmbedLayerNormFusion", "GatherSliceToSplitFusion",
    "GatherToSliceFusion", "MatmulTransposeFusion", "BiasGeluFusion", "GroupQueryAttentionFusion",
    "GroupQueryAttentionPreNormFusion", "SkipLayerNormFusion", "BiasSkipLayerNormFusion", "FastGeluFusion",
    "QuickGeluFusion", "GeluApproximation", "BiasSoftmaxFusion", "BiasDropoutFusion", "MatMulScaleFusion",
    "MatMulActivationFusion", "MatMulNBitsFusion", "DQMatMulNBitsFusion", "MatMulNBitsMlpFusion",
    "MatMulNBitsQkvFusion", "GqaValueLayoutTransformer", "Avx2WeightS8ToU8Transformer", "QDQFinalCleanupTransformer",
)  # fmt: skip
_LEVEL_3: Final = ("NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion")

OPTIMIZERS: Final[Mapping[str, int]] = {
    **dict.fromkeys(_LEVEL_1, 1),
    **dict.fromkeys(_LEVEL_2, 2),
    **dict.fromkeys(_LEVEL_3, 3),
}

# The runtime puts the name of a provider behind that of an optimiser that it runs again for it.
_MADE_UP: Final = "_CPUExecutionProvider"

# All rewrite rules of a level at once, those that are not in the list too.
RULES: Final[Mapping[str, int]] = {"Level1_RuleBasedTransformer": 1, "Level2_RuleBasedTransformer": 2}


def level_of(name: str) -> int:
    return {**OPTIMIZERS, **RULES}[name]


def names_up_to(level: int) -> tuple[str, ...]:
    """Optimisers that a session of this level may apply, in the order of the list."""
    return tuple(name for name, lowest in OPTIMIZERS.items() if lowest <= level)


def present(names: Iterable[str]) -> frozenset[str]:
    """Those of ``names`` that the installed library holds, as the text of a name or as that of a class."""
    library = Path(ort.capi.onnxruntime_pybind11_state.__file__)
    with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return frozenset(name for name in names if data.find(name.removesuffix(_MADE_UP).encode()) >= 0)

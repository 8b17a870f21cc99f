"""A reference in float16 can be the side that is wrong: what overflows there is no error of the candidate."""

import numpy as np

from bisect_onnx.core.compare import Array
from bisect_onnx.core.finding import Confidence, Finding
from bisect_onnx.core.tolerance import unit_roundoff
from bisect_onnx.pipeline.comparing import Comparison
from bisect_onnx.pipeline.region import Region

__all__ = ["reference_overflow"]


def reference_overflow(region: Region, compared: Comparison) -> Finding | None:
    """The first call of the reference whose float16 result is not finite although its float64 result is.

    None unless an output of the reference is not finite where the candidate's is.
    """
    observed = {name: region.plain[name] for name in region.graph.outputs if name in region.plain}
    lost = [name for name, array in observed.items() if _lost(compared.truth.get(name), array)]
    if not lost:
        return None
    for name, print_ in region.index.fingerprints.items():
        call = region.index.graph.producer(name)
        if call is None or print_.finite == print_.size or unit_roundoff(print_.dtype) <= unit_roundoff("float32"):
            continue
        exact = region.prober.capture.exact([name], given=call.real_inputs(), seed=None).get(name)
        if exact is None or not np.isfinite(exact).all():
            continue
        place = "" if call.source is None else f" at {call.source.file}:{call.source.line}"
        return Finding(
            code="PR003",
            name="reference-overflows",
            cause="K08",
            confidence=Confidence.PROVEN,
            subject=call.name,
            message=f"the reference itself overflows: {call.op_type} gives values beyond {print_.dtype}{place}, and "
            f"{lost[0]} of the candidate is finite where the reference's is not",
            facts={"largest in float64": float(np.max(np.abs(exact), initial=0.0)), "dtype": print_.dtype},
            remedy="Compare with the reference in float32, or scale the values down before that call.",
        )
    return None


def _lost(reference: Array | None, observed: Array) -> bool:
    if reference is None or reference.shape != observed.shape or reference.dtype.kind not in "fV":
        return False
    return bool((~np.isfinite(reference.astype(np.float64)) & np.isfinite(observed.astype(np.float64))).any())

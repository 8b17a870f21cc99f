"""``bisect-onnx locate``."""

import typer

from bisect_onnx.cli import options
from bisect_onnx.cli.presentation import Presentation, with_presentation

__all__ = ["locate"]


@with_presentation
def locate(
    *,
    candidate: options.Candidate,
    reference: options.Reference,
    inputs: options.Feeds = None,
    samples: options.Samples = False,
    module: options.Module = None,
    weights: options.Weights = None,
    unsafe_load: options.UnsafeLoad = False,
    seed: options.Seed = 0,
    shape: options.Shapes = None,
    provider: options.Providers = None,
    level: options.Level = 99,
    session_option: options.SessionOptions = None,
    custom_ops: options.CustomOps = None,
    candidate_values: options.CandidateValues = None,
    strategy: options.Strategy = "auto",
    atol: options.Atol = None,
    rtol: options.Rtol = None,
    metric: options.Metric = None,
    threshold: options.Threshold = None,
    keep_list: options.KeepList = None,
    max_memory: options.MaxMemory = None,
    presentation: Presentation,
) -> None:
    """Find the node of an ONNX model that introduces the error, and prove it by running it.

    Exit status: 0 parity; 1 a divergence; 2 bad usage or unreadable input; 3 a runtime failed or the answer is
    inconclusive; 70 a fault of ours; 130 interrupted.
    """
    if (metric is None) != (threshold is None):
        raise typer.BadParameter("--metric and --threshold go together", param_hint="--metric")
    shapes = options.parse_shapes(shape or ())
    session_options = options.parse_pairs(session_option or ())
    max_bytes = options.parse_bytes(max_memory)
    options.check_level(level)

    from bisect_onnx.cli.run import locate_and_show
    from bisect_onnx.pipeline.request import LocateRequest

    request = LocateRequest(
        candidate=candidate,
        reference=reference,
        inputs=options.one_or_several(inputs or ()),
        samples=samples,
        module=module,
        weights=weights,
        unsafe_load=unsafe_load,
        seed=seed,
        shapes=shapes,
        providers=tuple(provider) if provider else options.DEFAULT_PROVIDERS,
        level=level,
        session_options=session_options,
        custom_ops=tuple(custom_ops or ()),
        candidate_values=candidate_values,
        strategy=strategy,
        atol=atol,
        rtol=rtol,
        metric=metric,
        threshold=threshold,
        keep_list=keep_list,
        force=presentation.force,
        max_memory=max_bytes,
    )
    raise typer.Exit(locate_and_show(request, presentation))

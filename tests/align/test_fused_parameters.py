"""Parameters that an exporter or an optimiser put together, or took apart."""

import numpy as np
import pytest

from bisect_onnx.align.fused_parameters import fused, part_of

RNG = np.random.default_rng(4)
STATE = {
    f"layer.{layer}.{part}.{kind}": RNG.standard_normal((6, 4) if kind == "weight" else (6,)).astype(np.float32)
    for layer in range(3)
    for part in ("query", "key", "value")
    for kind in ("weight", "bias")
}
PARTS = ("query", "key", "value")


def names(layer: int, kind: str, count: int) -> list[str]:
    return [f"layer.{layer}.{part}.{kind}" for part in PARTS[:count]]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize(("kind", "turned"), [("weight", False), ("weight", True), ("bias", False)])
def test_parameters_put_together_are_found(count: int, layer: int, kind: str, turned: bool):  # noqa: FBT001
    together = np.concatenate([STATE[name] for name in names(layer, kind, count)])

    found = fused(together.T if turned else together, STATE)

    assert found is not None
    assert found.name == " + ".join(names(layer, kind, count))
    assert found.transform == ("concat, transpose" if turned else "concat")
    np.testing.assert_array_equal(found.array, together.T if turned else together)


def test_one_stale_part_is_held_against_its_parameter():
    parts = [STATE[name] for name in names(1, "weight", 3)]
    stale = np.concatenate([parts[0], parts[1] * np.float32(1.1), parts[2]])

    found = fused(stale, STATE)

    assert found is not None
    assert found.name == " + ".join(names(1, "weight", 3))
    np.testing.assert_array_equal(found.array, np.concatenate(parts))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_a_part_of_a_parameter_is_found(place: int, turned: bool):  # noqa: FBT001
    state = {"in_proj_weight": RNG.standard_normal((12, 4)).astype(np.float32)} | STATE
    part = np.split(state["in_proj_weight"], 3)[place]

    found = part_of(part.T if turned else part, state)

    assert found is not None
    assert found.name == f"in_proj_weight[{place + 1} of 3]"
    assert found.transform == ("split, transpose" if turned else "split")
    np.testing.assert_array_equal(found.array, part.T if turned else part)


@pytest.mark.parametrize("shape", [(18, 4), (4, 18), (18,), (5, 5), (0, 4)])
def test_what_nobody_has_is_nothing(shape: tuple[int, ...]):
    array = RNG.standard_normal(shape).astype(np.float32) * 3

    assert fused(array, STATE) is None
    assert part_of(array, STATE) is None

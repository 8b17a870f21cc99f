"""Float64 results as rounding in a narrower dtype might have left them."""

import numpy as np
import pytest
import torch

from bisect_onnx.runtimes.torch_rounding import PIECE, rounded_at_random

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def numbers(count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_moves_by_half_a_unit_at_most_and_some_by_nearly_that(dtype: torch.dtype):
    exact = numbers(2 * PIECE + 17)

    moved = rounded_at_random(exact, dtype, seed=(1, 2, 3))

    steps = ((moved / exact - 1) / (torch.finfo(dtype).eps / 2)).abs()
    assert 0.99 < float(steps.max()) <= 1.0 + 1e-6
    assert 0.45 < float(steps.mean()) < 0.55


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_dtype_holds_stays(dtype: torch.dtype):
    held = numbers(1000).to(dtype).to(torch.float64)

    assert torch.equal(rounded_at_random(held, dtype, seed=(1,)), held)


def test_what_is_no_number_and_the_sign_of_zero_stay():
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0], dtype=torch.float64)

    moved = rounded_at_random(special, torch.float32, seed=(1,))

    assert np.array_equal(moved.numpy(), special.numpy(), equal_nan=True)
    assert torch.equal(torch.signbit(moved), torch.signbit(special))


def test_equal_seeds_round_alike_and_others_do_not():
    exact = numbers(100)

    first, again, other = (rounded_at_random(exact, torch.float32, seed=(1, number)) for number in (4, 4, 5))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_shapes_stay_and_the_argument_is_not_written_to():
    exact = numbers(12).reshape(3, 4).t()
    before = exact.clone()

    assert rounded_at_random(exact, torch.float32, seed=(1,)).shape == (4, 3)
    assert torch.equal(exact, before)
    assert rounded_at_random(torch.zeros(0, 2, dtype=torch.float64), torch.float32, seed=(1,)).shape == (0, 2)

"""Rounding as it might have happened: float64 results moved at random within half a unit in the last place."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

__all__ = ["rounded_at_random"]

# Worked through piece by piece in memory that stays in the cache: whole temporaries of a large value cost more than
# the arithmetic.
PIECE: Final = 1 << 15

MANTISSA_BITS: Final = 52  # stored ones of float64


def rounded_at_random(exact: torch.Tensor, dtype: torch.dtype, *, seed: Sequence[int]) -> torch.Tensor:
    """Each element times 1 + u, with u uniform within half a unit roundoff of ``dtype``; what it holds stays.

    What the original precision holds exactly was not rounded: a 1 - mask of zeros and ones, powers of two. It may be
    multiplied by the smallest number next, and the noise of nothing would be larger than everything.

    Args:
        exact: Float64.
        dtype: The floating dtype that the value had.
        seed: Numbers of 0 or more; equal ones round alike.
    """
    generator = np.random.Generator(np.random.SFC64(list(seed)))
    eps = torch.finfo(dtype).eps
    # Those bits of the mantissa are zero in a number that the dtype holds (beyond its range nothing is asked).
    lost = np.int64((1 << MANTISSA_BITS + int(np.log2(eps))) - 1)
    given = exact.detach().cpu().contiguous().numpy().reshape(-1)
    made = np.empty_like(given)
    draws = np.empty(min(PIECE, given.size), dtype=np.float32)
    factors = np.empty(draws.size, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, given.size, PIECE):
            piece = given[start : start + PIECE]
            draw, factor = draws[: piece.size], factors[: piece.size]
            generator.random(out=draw, dtype=np.float32)
            draw -= np.float32(0.5)
            draw *= (piece.view(np.int64) & lost) != 0
            np.multiply(draw, eps, out=factor)
            factor += 1
            np.multiply(piece, factor, out=made[start : start + PIECE])
    return torch.from_numpy(made).reshape(exact.shape).to(exact.device)

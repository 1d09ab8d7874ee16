"""Random numbers as a function of their purpose: seed, epoch, sample and stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Do one step of SplitMix64 (Steele, Lea and Flood 2014): a bijection of 64-bit words that scatters every bit."""
    with np.errstate(over="ignore"):
        state = state + _INCREMENT
        state = (state ^ (state >> np.uint64(30))) * _MULTIPLIER_1
        state = (state ^ (state >> np.uint64(27))) * _MULTIPLIER_2
    return state ^ (state >> np.uint64(31))


def counter_uniforms(
    seed: int, epoch: int, indices: NDArray[np.int64], num_draws: int, *, stream: int = 0
) -> NDArray[np.float64]:
    """Draw uniform numbers that depend only on seed, epoch, sample and stream.

    A generator with a state would tie a sample's augmentation to the worker that happens to load it and to everything
    loaded before. Here any number of workers, resumed or not, draw the same.

    Args:
        seed: Seed of the run, at least 0.
        epoch: Epoch, from 0.
        indices: Sample indices in the data set, shape (N,).
        num_draws: Numbers per sample.
        stream: Separates draws for different purposes.

    Returns:
        Uniform numbers in [0, 1), shape (N, num_draws).
    """
    state = np.zeros((1,), dtype=np.uint64)
    for word in (seed, epoch, stream):
        state = _mix(state ^ np.uint64(word))
    per_sample = _mix(state ^ indices.astype(np.uint64))  # (N,)
    draws = np.arange(num_draws, dtype=np.uint64)
    bits = _mix(per_sample[:, None] ^ _mix(draws)[None, :])  # (N, num_draws)
    # The top 53 bits fill a double's mantissa exactly.
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

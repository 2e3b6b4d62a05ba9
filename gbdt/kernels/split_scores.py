"""What a split is worth, and the sums it is computed from: packed in one word, or gradient, hessian and count."""

from __future__ import annotations

from dmlgbm.gbdt.kernels.compiler import bits_from_float, float_from_bits, inlined
from dmlgbm.gbdt.kernels.layout import RecordArray


@inlined
def score(gradient: float, hessian: float, l1: float, l2: float) -> float:
    """Twice the loss that a leaf with these sums removes: T(G)^2 / (H + l2), T shrinking by l1."""
    shrunk = max(abs(gradient) - l1, 0.0)
    return shrunk * shrunk / (hessian + l2)


@inlined
def split_score(left: float, left_hessian: float, right: float, right_hessian: float, l1: float, l2: float) -> float:
    """The score of both sides together. One division serves both: it is the slowest operation here."""
    left, right = max(abs(left) - l1, 0.0), max(abs(right) - l1, 0.0)
    left_hessian += l2
    right_hessian += l2
    return (left * left * right_hessian + right * right * left_hessian) / (left_hessian * right_hessian)


@inlined
def score_to_beat(nodes: RecordArray, node: int, feature: int) -> float:
    """The best score so far, or the next lower number if this feature wins a tie against the one that has it."""
    best = nodes[node].gain
    return float_from_bits(bits_from_float(best) - 1) if feature < nodes[node].feature else best


@inlined
def unpacked(packing: RecordArray, word: int) -> tuple[int, int, int]:
    """Gradient, hessian and count of a packed sum."""
    gradient = word >> packing[0].gradient_shift
    hessian = (word >> packing[0].hessian_shift) & packing[0].hessian_mask
    return gradient, hessian, word & packing[0].count_mask


@inlined
def packed_word(packing: RecordArray, sums: tuple[int, int, int]) -> int:
    """The packed sum of gradient, hessian and count."""
    return (sums[0] << packing[0].gradient_shift) + sums[1] * packing[0].hessian_factor + sums[2]

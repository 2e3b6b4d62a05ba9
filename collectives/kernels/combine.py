"""The rows of a program that stay inside a rank: copying, and combining elements of one numeric type.

A kernel is compiled for each element type on first use; `like` is an empty array that names it.
"""

from __future__ import annotations

from typing import Any

from dmlgbm.collectives.kernels.compiler import bits_and, bits_or, carray, copy_bytes, kernel, pointer_to
from dmlgbm.collectives.kernels.layout import (
    ACTION,
    BITWISE_AND,
    BITWISE_OR,
    COMBINE,
    COPY,
    COUNT,
    FROM_BUFFER,
    FROM_OFFSET,
    MAXIMUM,
    MINIMUM,
    PRODUCT,
    SUM,
    TO_BUFFER,
    TO_OFFSET,
)


@kernel
def combine(target: Any, source: Any, operation: Any) -> None:
    """target = target (operation) source, element by element."""
    if operation == SUM:
        for i in range(len(target)):
            target[i] = target[i] + source[i]
    elif operation == PRODUCT:
        for i in range(len(target)):
            target[i] = target[i] * source[i]
    elif operation == MINIMUM:
        for i in range(len(target)):
            if not (target[i] <= source[i] or target[i] != target[i]):
                target[i] = source[i]
    elif operation == MAXIMUM:
        for i in range(len(target)):
            if not (target[i] >= source[i] or target[i] != target[i]):
                target[i] = source[i]
    elif operation == BITWISE_AND:
        for i in range(len(target)):
            target[i] = bits_and(target[i], source[i])
    elif operation == BITWISE_OR:
        for i in range(len(target)):
            target[i] = bits_or(target[i], source[i])


@kernel
def run_local_rows(
    first: Any, last: Any, program: Any, itemsize: Any, addresses: Any, operation: Any, like: Any
) -> None:
    """Copy and combine as rows first..last say."""
    for row in range(first, last):
        action = program[row, ACTION]
        if action not in (COPY, COMBINE):
            continue
        count = program[row, COUNT]
        source = addresses[program[row, FROM_BUFFER]] + program[row, FROM_OFFSET] * itemsize
        target = addresses[program[row, TO_BUFFER]] + program[row, TO_OFFSET] * itemsize
        if action == COPY:
            copy_bytes(target, source, count * itemsize)
        else:
            combine(
                carray(pointer_to(target), (count,), like.dtype),
                carray(pointer_to(source), (count,), like.dtype),
                operation,
            )

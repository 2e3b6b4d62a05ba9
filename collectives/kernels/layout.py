"""What the columns, words and numbers mean that drivers and kernels share.

A program is an int64 table with one row for each thing a rank does. Rows of one phase that send or receive go on
side by side; rows that copy or combine run after them, in order. Offsets and counts are in elements.
"""

from __future__ import annotations

# Columns of a program.
PHASE, ACTION, PEER, FROM_BUFFER, FROM_OFFSET, TO_BUFFER, TO_OFFSET, COUNT = range(8)
PROGRAM_COLUMNS = 8

# Actions. COMBINE is to = to (operation) from: the side with the lower ranks is always `to`.
SEND, RECEIVE, COPY, COMBINE = range(4)

# Buffers that offsets refer to.
SOURCE, TARGET, SCRATCH = range(3)
N_BUFFERS = 3

# A message is a header of this many int64 words, then the payload.
HEADER_WORDS = 8
HEADER_BYTES = 8 * HEADER_WORDS
# The word that holds the sequence number.
SEQUENCE_WORD = 3

# Words of the control array: where a run stands, and what stopped it.
NEXT_ROW, STOPPED_PEER, STOPPED_ROW, ERROR_NUMBER = range(4)
CONTROL_WORDS = 4

# Words that the prepared collectives of one communicator share: the number of the next one, and which one is under way.
NEXT_SEQUENCE, RUNNING = range(2)
TURN_WORDS = 2
NOBODY_RUNS = -1

# Why a run came back.
# HUNG_UP: a peer of which nothing is awaited now will send no more.
DONE, EXPIRED, WOKEN, INTERRUPTED, UNEXPECTED, LOST, HUNG_UP = range(7)

# Operations.
SUM, PRODUCT, MINIMUM, MAXIMUM, BITWISE_AND, BITWISE_OR = range(6)

"""Per batch the extension leaves 100 blocks of 700 bytes and frees 100 others.

The first argument is the folder of leaky_extension; with "clean" as the second, nothing is left.
"""

import gc
import sys

from batch import serve

sys.path.insert(0, sys.argv[1])
import leaky_extension

leaks = "clean" not in sys.argv[2:]
# 700 bytes are beyond what Python's own allocator would serve: only the extension makes such blocks.
SIZE = 700
kept = 0
# The interpreter's own bookkeeping must not happen in some batches and not in others.
gc.disable()


def batch():
    global kept
    for _ in range(100):
        leaky_extension.clean(SIZE)
        if leaks:
            leaky_extension.leak(SIZE)
            kept += 1


serve(batch, lambda: {"extension_leaks": (kept, kept * SIZE)})

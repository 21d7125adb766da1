"""Per batch leaves 100 blocks of 700 bytes by way of outer() and leak_here(), functions of this script.

The first argument is the folder of leaky_extension.
"""

import sys

from batch import serve

sys.path.insert(0, sys.argv[1])
import leaky_extension

SIZE = 700
kept = 0


def leak_here():
    leaky_extension.leak(SIZE)


def outer():
    leak_here()


def batch():
    global kept
    for _ in range(100):
        outer()
        kept += 1


serve(batch, lambda: {"leak_here": (kept, kept * SIZE)})

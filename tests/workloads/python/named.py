"""Per batch leaves 100 blocks of 700 bytes by way of outer() and leak_here(), functions of this script.

The first argument is the folder of leaky_extension. With a second one each batch has a thread of its own.
"""

import sys
import threading

from batch import serve

sys.path.insert(0, sys.argv[1])
import leaky_extension

SIZE = 700
kept = 0


def leak_here():
    leaky_extension.leak(SIZE)


def outer():
    leak_here()


def calls():
    for _ in range(100):
        outer()


def batch():
    global kept
    if len(sys.argv) > 2:
        thread = threading.Thread(target=calls)
        thread.start()
        thread.join()
    else:
        calls()
    kept += 100


serve(batch, lambda: {"leak_here": (kept, kept * SIZE)})

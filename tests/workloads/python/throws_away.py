"""Per batch makes functions, calls each once and throws it away; each has a living one leave a buffer."""

import gc

from batch import serve

kept = [None] * 65536
n_kept = 0
gc.disable()

MADE = 50
SIZE = 5001


class Cache:
    def add(self):
        global n_kept
        # Beyond what Python's own allocator serves; one byte is for the buffer's end.
        kept[n_kept] = bytearray(SIZE - 1)
        n_kept += 1


cache = Cache()


def lives():
    cache.add()


def batch():
    for number in range(MADE):
        # Of another length each, so that each has a place and instructions of its own.
        lines = "".join(f"    x{i} = {i}\n" for i in range(number))
        names = {"cache": cache}
        exec(f"def made_{number}():\n{lines}    cache.add()\n", names)
        # It holds on to the names, so that they are not to hold on to it.
        names.pop(f"made_{number}")()
    lives()


serve(batch, lambda: {"Cache.add": (n_kept, n_kept * SIZE)})

"""Per batch makes functions, calls each once and throws it away; each has a living one leave a buffer.

The place of one is taken by another, which lives on.
"""

import gc

from batch import serve

kept = [None] * 65536
n_kept = 0
gc.disable()

MADE = 50
REPLACED = 10
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


alive = []


def replaced():
    """Throws functions away, all of them but their size, and has one made in the place of one of them."""
    names = {"cache": cache}
    thrown_away = []
    for _ in range(REPLACED):
        exec("def thrown_away():\n    cache.add()\n", names)
        thrown_away.append(names.pop("thrown_away"))
    for function in thrown_away:
        function()
    places = {id(function.__code__) for function in thrown_away}
    del function, thrown_away
    for _ in range(10000):
        exec("def takes_place():\n    cache.add()\n", names)
        alive.append(names["takes_place"].__code__)
        if id(alive[-1]) in places:
            return
    raise MemoryError("no function came into the place of one that was thrown away")


def batch():
    for number in range(MADE):
        # Of another length each, so that each has a place and instructions of its own.
        lines = "".join(f"    x{i} = {i}\n" for i in range(number))
        names = {"cache": cache}
        exec(f"def made_{number}():\n{lines}    cache.add()\n", names)
        # It holds on to the names, so that they are not to hold on to it.
        names.pop(f"made_{number}")()
    replaced()
    lives()


serve(batch, lambda: {"Cache.add": (n_kept, n_kept * SIZE)})

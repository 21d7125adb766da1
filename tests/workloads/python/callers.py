"""Per batch each of several functions leaves one buffer of a size of its own, in as many ways to call.

The names of the sites are those of the functions that leave the buffers; `frees` leaves none, by the same native stack as `plain`. With
"new-threads" as an argument, each batch begins a thread that leaves one too.
"""

import asyncio
import functools
import gc
import sys
import threading

from batch import serve

kept = []
account = {}
gc.disable()
# What the list takes is not to be in some batches and not in others.
kept.extend([None] * 4096)
n_kept = 0


def keep(site, size):
    global n_kept
    # Beyond what Python's own allocator serves; one byte is for the buffer's end.
    kept[n_kept] = bytearray(size - 1)
    n_kept += 1
    blocks, total = account.get(site, (0, 0))
    account[site] = (blocks + 1, total + size)


def frees():
    size = 5001
    return len(bytearray(size - 1))


def plain():
    keep("plain", 5001)


class Owner:
    def __init__(self):
        keep("Owner.__init__", 5002)

    def method(self):
        keep("Owner.method", 5003)


def makes_owner():
    Owner().method()


def sort_key(item):
    keep("sort_key", 5004)
    return item


def sorts():
    sorted([1], key=sort_key)


def generator():
    keep("generator", 5005)
    yield 1


def iterates():
    for _ in generator():
        pass
    return sum(generator())


async def coroutine():
    keep("coroutine", 5006)


async def awaits():
    await coroutine()


def in_thread():
    keep("in_thread", 5007)


def in_new_thread():
    keep("in_new_thread", 5011)


def begins():
    thread = threading.Thread(target=in_new_thread)
    thread.start()
    thread.join()


def recursive(depth):
    if depth == 0:
        keep("recursive", 5008)
    else:
        recursive(depth - 1)


def partial_target(_one):
    keep("partial_target", 5009)


NAMESPACE = {"keep": keep}
exec(compile("def generated():\n    keep('generated', 5010)\n", "made up", "exec"), NAMESPACE)


def batch():
    frees()
    plain()
    makes_owner()
    sorts()
    iterates()
    loop.run_until_complete(awaits())
    ask.release()
    done.acquire()
    recursive(200)
    list(map(functools.partial(partial_target), [1]))
    NAMESPACE["generated"]()
    if "new-threads" in sys.argv:
        begins()


def serve_thread():
    while True:
        ask.acquire()
        in_thread()
        done.release()


ask, done = threading.Semaphore(0), threading.Semaphore(0)
threading.Thread(target=serve_thread, daemon=True).start()
loop = asyncio.new_event_loop()
serve(batch, lambda: account)

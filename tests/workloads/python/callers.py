"""Per batch each of several functions leaves one buffer of a size of its own, in as many ways to call.

The protocol and the account are those of ../c/batch.h. The names of the sites are those of the
functions that leave the buffers; `frees` leaves none, by the same native stack as `plain`. With
"new-threads" as an argument, each batch begins a thread that leaves one too.
"""

import asyncio
import functools
import gc
import json
import os
import sys
import threading

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


def serve():
    while True:
        ask.acquire()
        in_thread()
        done.release()


ask, done = threading.Semaphore(0), threading.Semaphore(0)
threading.Thread(target=serve, daemon=True).start()
loop = asyncio.new_event_loop()
truth = os.environ.get("BATCH_TRUTH")
truth = os.open(truth, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if truth else None


def tell(number):
    if truth is not None:
        sites = {site: {"blocks": n, "bytes": total} for site, (n, total) in account.items()}
        os.write(truth, (json.dumps({"batch": number, "sites": sites}) + "\n").encode())


tell(0)
reply = os.environ.get("BATCH_REPLY")
reply = os.open(reply, os.O_RDWR) if reply else None
wants_reply = False
os.write(1, b"READY %d\n" % os.getpid())
number = 0
while byte := os.read(0, 1):
    wants_reply |= byte == b"r"
    if byte != b"\n":
        continue
    number += 1
    batch()
    tell(number)
    os.write(1, b"DONE %d\n" % number)
    if wants_reply and reply is not None:
        os.write(reply, b"DONE %d\n" % number)
    wants_reply = False

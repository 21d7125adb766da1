"""Per batch leaves 100 blocks of 700 bytes by way of outer() and leak_here(), functions of this script.

The first argument is the folder of leaky_extension. With a second one each batch has a thread of its own.
The protocol and the account are those of ../c/batch.h.
"""

import json
import os
import sys
import threading

sys.path.insert(0, sys.argv[1])
import leaky_extension

SIZE = 700
kept = 0
truth = os.environ.get("BATCH_TRUTH")
truth = os.open(truth, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if truth else None


def account(batch):
    if truth is not None:
        line = {"batch": batch, "sites": {"leak_here": {"blocks": kept, "bytes": kept * SIZE}}}
        os.write(truth, (json.dumps(line) + "\n").encode())


def leak_here():
    leaky_extension.leak(SIZE)


def outer():
    leak_here()


def calls():
    for _ in range(100):
        outer()


account(0)
os.write(1, b"READY %d\n" % os.getpid())
batch = 0
while os.read(0, 1) == b"\n":
    batch += 1
    if len(sys.argv) > 2:
        thread = threading.Thread(target=calls)
        thread.start()
        thread.join()
    else:
        calls()
    kept += 100
    account(batch)
    os.write(1, b"DONE %d\n" % batch)

"""Per batch the extension leaves 100 blocks of 700 bytes and frees 100 others.

The first argument is the folder of leaky_extension; with "clean" as the second, nothing is left.
The protocol and the account are those of ../c/batch.h.
"""

import gc
import json
import os
import sys

sys.path.insert(0, sys.argv[1])
import leaky_extension

leaks = "clean" not in sys.argv[2:]
# 700 bytes are beyond what Python's own allocator would serve: only the extension makes such blocks.
SIZE = 700
kept = 0
truth = os.environ.get("BATCH_TRUTH")
truth = os.open(truth, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if truth else None
# The interpreter's own bookkeeping must not happen in some batches and not in others.
gc.disable()


def account(batch):
    if truth is not None:
        site = {"blocks": kept, "bytes": kept * SIZE}
        line = {"batch": batch, "sites": {"extension_leaks": site}}
        os.write(truth, (json.dumps(line) + "\n").encode())


account(0)
os.write(1, b"READY %d\n" % os.getpid())
batch = 0
while os.read(0, 1) == b"\n":
    batch += 1
    for _ in range(100):
        leaky_extension.clean(SIZE)
        if leaks:
            leaky_extension.leak(SIZE)
            kept += 1
    account(batch)
    os.write(1, b"DONE %d\n" % batch)

"""A pool of four processes; per batch they leave 200 blocks of 700 bytes in the extension together.

The first argument is the folder of leaky_extension. The protocol and the account are those of
../c/batch.h.
"""

import json
import multiprocessing
import os
import sys

sys.path.insert(0, sys.argv[1])
import leaky_extension

SIZE = 700
TASKS = 20


def task(_):
    for _ in range(10):
        leaky_extension.leak(SIZE)


def account(truth, batch):
    blocks = batch * TASKS * 10
    site = {"blocks": blocks, "bytes": blocks * SIZE}
    line = {"batch": batch, "sites": {"extension_leaks": site}}
    os.write(truth, (json.dumps(line) + "\n").encode())


def main():
    truth = os.open(os.environ["BATCH_TRUTH"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        account(truth, 0)
        os.write(1, b"READY %d\n" % os.getpid())
        batch = 0
        while os.read(0, 1) == b"\n":
            batch += 1
            pool.map(task, range(TASKS), chunksize=1)
            account(truth, batch)
            os.write(1, b"DONE %d\n" % batch)


if __name__ == "__main__":
    main()

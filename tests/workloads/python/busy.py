"""Allocates and frees natively for ever and says each second that it lives: attach under load."""

import os
import time

os.write(1, b"READY %d\n" % os.getpid())
beat = time.monotonic()
beats = 0
while True:
    rows = [bytearray(1000 + n) for n in range(200)]
    del rows
    if time.monotonic() - beat >= 0.2:
        beat = time.monotonic()
        beats += 1
        os.write(1, b"ALIVE %d\n" % beats)

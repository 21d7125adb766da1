"""A WSGI application: each request leaves 10 blocks of 64 bytes in a C library, which the
environment names."""

import ctypes
import os

library = ctypes.CDLL(os.environ["LEAKY_LIBRARY"])


def application(environ, start_response):
    for _ in range(10):
        library.leaky_library(64)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d\n" % os.getpid()]

"""Runs gdb's program to its end and writes down where each call of an allocator comes from: a line of
addresses for each stack, the caller's first, each within the instruction that the frame has not left."""

import gdb

ALLOCATORS = ["malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign"]


def entries():
    """The first instructions of the allocators, without the stubs through which they are called."""
    pattern = r"\|".join(ALLOCATORS)
    lines = gdb.execute(rf"info functions ^\({pattern}\)$", to_string=True).splitlines()
    addresses = [line.split()[0] for line in lines if line.startswith("0x")]
    return [at for at in addresses if " section .text" in gdb.execute(f"info symbol {at}", to_string=True)]


def stack():
    frame = gdb.newest_frame().older()
    interrupted = False
    # Of the loader's own start, which nothing has called, gdb takes what lies on the stack for the
    # caller: the number of arguments, or nothing. No code is that low.
    while frame is not None and frame.pc() >= 4096:
        yield frame.pc() - (0 if interrupted else 1)
        interrupted = frame.type() == gdb.SIGTRAMP_FRAME
        frame = frame.older()


class Allocator(gdb.Breakpoint):
    stacks = set()

    def stop(self):
        self.stacks.add(tuple(stack()))
        return False


# The libraries are there before any code of theirs runs.
gdb.execute("set stop-on-solib-events 1")
gdb.execute("run")
while not entries():
    gdb.execute("continue")
gdb.execute("set stop-on-solib-events 0")
for entry in entries():
    Allocator("*" + entry)
gdb.execute("continue")
with open(gdb.convenience_variable("output").string(), "w") as output:
    output.writelines(" ".join(map(hex, stack)) + "\n" for stack in Allocator.stacks)

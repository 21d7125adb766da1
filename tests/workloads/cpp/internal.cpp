// Per batch, 50 blocks of 64 bytes are left by a function, 50 of 32 by a member of a class, and 50 of 16
// by a function that is inlined into `around`. In the source each is called `step`, and no other unit can
// call it.
#include "../c/batch.h"

static struct site sites[] = {SITE(batch)};

static void take(size_t n) { keep(&sites[0], malloc(n), n); }

namespace red {
namespace {
NOINLINE void step() {
    take(64);
    asm("");
}
}
}

namespace blue {
namespace {
struct Pool {
    NOINLINE void step() {
        take(32);
        asm("");
    }
};
}
}

namespace green {
namespace {
inline __attribute__((always_inline)) void step() {
    take(16);
    // So that it is not left before the call, here and above.
    asm("");
}
}
}

extern "C" NOINLINE void around() {
    green::step();
    asm("");
}

static NOINLINE void batch(int) {
    for (int i = 0; i < 50; i++) {
        red::step();
        blue::Pool().step();
        around();
        asm("");
    }
}

int main() { return BATCHES(batch, sites); }

// Per batch: 100 objects of 48 bytes and 50 arrays of 1,000 bytes are left; others are deleted
// in every form, and 100 exceptions are thrown and caught, which leaves nothing.
#include <new>
#include <stdexcept>

#include "../c/batch.h"

static struct site sites[] = {SITE(objects), SITE(arrays)};

struct Object {
    char bytes[48];
};
struct alignas(64) Aligned {
    char bytes[64];
};

// Where operator new keeps no frame pointer, a stack may lack the function that calls it: the
// sites are one call further out.
NOINLINE Object *make_object() { return new Object; }

NOINLINE char *make_array() { return new char[1000]; }

NOINLINE void objects() { keep(&sites[0], make_object(), sizeof(Object)); }

NOINLINE void arrays() { keep(&sites[1], make_array(), 1000); }

NOINLINE void deletes() {
    delete new Object;
    delete[] new char[1000];
    delete new Aligned;
    delete new (std::nothrow) Object;
}

NOINLINE void throws() {
    try {
        throw std::runtime_error("an exception that is longer than a short string holds");
    } catch (const std::runtime_error &) {
    }
}

static void batch(int) {
    for (int i = 0; i < 100; i++) {
        objects();
        if (i % 2)
            arrays();
        deletes();
        throws();
    }
}

int main() { return BATCHES(batch, sites); }

/* A producer thread makes 50,000 blocks of 64 bytes per batch and hands each through a
 * lock-free ring to a consumer thread that frees it, each on its own processor: an address
 * is made again while its last free is still under way. "leak": the consumer leaves every
 * thousandth. */
#define _GNU_SOURCE
#include <sched.h>

#include "step.h"

static struct site sites[] = {SITE(produce)};
static int leaks;
#ifndef ITEMS
#define ITEMS 50000
#endif
enum { SLOTS = 256 };
static void *ring[SLOTS];

static void pin(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    /* With one processor only the race is rarer; the figures are the same. */
    (void)!sched_setaffinity(0, sizeof set, &set);
}

NOINLINE void produce(int i) {
    void *p = malloc(64);
    while (__atomic_load_n(&ring[i % SLOTS], __ATOMIC_ACQUIRE))
        sched_yield();
    __atomic_store_n(&ring[i % SLOTS], p, __ATOMIC_RELEASE);
}

NOINLINE void consume(int i) {
    void *p;
    while (!(p = __atomic_exchange_n(&ring[i % SLOTS], NULL, __ATOMIC_ACQ_REL)))
        sched_yield();
    if (leaks && i % 1000 == 0)
        keep(&sites[0], p, 64);
    else
        free(p);
}

static void work(int thread) {
    pin(thread);
    for (int i = 0; i < ITEMS; i++)
        thread ? produce(i) : consume(i);
}

int main(int argc, char **argv) {
    leaks = mode_is(argc, argv, "leak");
    step_threads(2, NULL, work);
    return BATCHES(step, sites);
}

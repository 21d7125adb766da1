/* A library with a large unwind table: 200,000 functions that hand what they are given to leaves(). */
__attribute__((visibility("hidden"), noinline)) void leaves(void (*function)(void)) {
    function();
    __asm__ volatile("" ::: "memory");
}

#include "functions.h"

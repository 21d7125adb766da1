/* The library whose blocks opened_library.c keeps. */
#include <stdlib.h>

void *leaky_library(size_t n) { return malloc(n); }

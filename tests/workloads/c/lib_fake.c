/* A library that is named like the C library and has no allocator. */
int fake(void) { return 1; }

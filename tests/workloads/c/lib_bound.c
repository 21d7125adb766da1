/* Defines what lib_binds.c calls. */
int bound(int n) { return n + 1; }

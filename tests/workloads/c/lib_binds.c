/* Calls a function of another library, which the loader looks for at the first call. It keeps in mind
 * that the one library needs the other, and allocates for that. To be linked with -z lazy. */
int bound(int n);

int binds(int n) { return bound(n) * 2; }

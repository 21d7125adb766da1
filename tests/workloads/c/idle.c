/* Makes no allocator call at all after it started. */
#include "batch.h"

static struct site sites[] = {SITE(batch)};

static void batch(int n) { (void)n; }

int main(void) { return BATCHES(batch, sites); }

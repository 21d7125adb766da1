/* An object with some thousands of unwind rows. */

#define FUNCTION(n)                                                                                \
    long function_##n(long (*next)(long, long), long a, long b) {                                  \
        long c = next(a, b), d = next(b, c);                                                       \
        return next(c, d) + next(d, a) + b * n;                                                    \
    }
#define TEN(n)                                                                                     \
    FUNCTION(n##0) FUNCTION(n##1) FUNCTION(n##2) FUNCTION(n##3) FUNCTION(n##4)                     \
    FUNCTION(n##5) FUNCTION(n##6) FUNCTION(n##7) FUNCTION(n##8) FUNCTION(n##9)
#define HUNDRED(n)                                                                                 \
    TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8)      \
    TEN(n##9)

HUNDRED(1) HUNDRED(2) HUNDRED(3)

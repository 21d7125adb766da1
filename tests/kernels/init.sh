#!/bin/sh
# The first process of a virtual machine that `cargo xtask kernels` boots. Runs what /what names,
# one line per test on the console, then switches the machine off. The lines that begin with
# VERDICT are read by the one who started the machine.
export PATH=/usr/bin:/bin HOME=/root TMPDIR=/tmp RUST_BACKTRACE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
. /what

verdict() {
    if [ "$1" = 0 ]; then
        echo "VERDICT passed $2"
    else
        echo "VERDICT failed $2"
    fi
}

# This kernel is too old: one sentence that names what it lacks, and the exit code for it.
refusal() {
    sleep 1000 &
    outlive attach -p $! -d 1s >/tmp/out 2>/tmp/err
    code=$?
    cat /tmp/out /tmp/err
    [ "$code" = 4 ] && [ "$(wc -l </tmp/err)" = 1 ] && [ ! -s /tmp/out ] &&
        grep -q '^outlive: this kernel .*bpf_loop' /tmp/err
}

try() {
    timeout "$LIMIT" "$SUITE" --exact "$1" >/tmp/log 2>&1
    code=$?
    [ "$code" = 0 ] || cat /tmp/log
    # A name that no test has passes without running anything.
    grep -q '1 passed' /tmp/log || code=1
    return "$code"
}

# Recent kernels leave programs out while a thread of the same processor is preempted in certain
# places, which one emulated processor makes likely. The tool counts that and gives no verdict, so
# the figures are marked and not wrong, but they are no measure of anything: it is done again.
was_skipped() {
    grep -q '"skipped": [1-9]' /tmp/log
}

suite() {
    for name in $TESTS; do
        try "$name"
        code=$?
        for again in 2 3; do
            [ "$code" != 0 ] && was_skipped || break
            echo "programs were skipped, so $name is tried again ($again)"
            try "$name"
            code=$?
        done
        verdict "$code" "$name"
    done
}

if [ -n "$TESTS" ]; then
    suite
else
    refusal
    verdict $? "is refused in one sentence"
fi
echo "VERDICT end"
echo o >/proc/sysrq-trigger
sleep 1000

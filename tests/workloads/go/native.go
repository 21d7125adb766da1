// Per batch, leaves 100 copies of a string of 1,000 bytes in C memory: with its end, 1,001 bytes
// each. At the same time the stacks of goroutines grow and move.
package main

// #include <stdlib.h>
// static void *pair(size_t n) { void *p = malloc(n); free(p); return p; }
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"
)

var kept []unsafe.Pointer
var text = strings.Repeat("x", 1000)

//go:noinline
func deep(n int) int {
	var space [64]byte
	space[n%64] = 1
	if n == 0 {
		C.pair(64)
		return int(space[0])
	}
	return deep(n-1) + int(space[n%64])
}

func batch() {
	var all sync.WaitGroup
	for i := 0; i < 50; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if deep(2000) != 2001 {
				os.Exit(71)
			}
		}()
	}
	for i := 0; i < 100; i++ {
		kept = append(kept, unsafe.Pointer(C.CString(text)))
	}
	all.Wait()
}

func account(n int) {
	file, err := os.OpenFile(os.Getenv("BATCH_TRUTH"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0600)
	if err != nil {
		return
	}
	fmt.Fprintf(file, "{\"batch\":%d,\"sites\":{}}\n", n)
	file.Close()
}

func main() {
	input := bufio.NewReader(os.Stdin)
	// Kept open for both ways: what nobody has read yet is lost when a pipe is closed.
	reply, err := os.OpenFile(os.Getenv("BATCH_REPLY"), os.O_RDWR, 0)
	canReply := err == nil
	account(0)
	fmt.Println("READY", os.Getpid())
	for n := 1; ; n++ {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		batch()
		account(n)
		fmt.Println("DONE", n)
		if canReply && strings.HasPrefix(line, "r") {
			fmt.Fprintln(reply, "DONE", n)
		}
	}
}

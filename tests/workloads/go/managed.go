// Has no C library and no malloc: its runtime maps all memory itself.
package main

import (
	"bufio"
	"fmt"
	"os"
)

var kept [][]byte

func main() {
	input := bufio.NewReader(os.Stdin)
	fmt.Println("READY", os.Getpid())
	for n := 1; ; n++ {
		if _, err := input.ReadString('\n'); err != nil {
			return
		}
		kept = append(kept, make([]byte, 1<<20))
		fmt.Println("DONE", n)
	}
}

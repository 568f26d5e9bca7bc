//go:build !js

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "tezgah-web runs in a browser: build it with GOOS=js GOARCH=wasm, or run 'tezgah web build DIR' for a folder that any web host can serve")
	os.Exit(2)
}

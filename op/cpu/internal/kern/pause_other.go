//go:build !amd64

package kern

import "runtime"

// pause gives way to other goroutines where there is no PAUSE instruction to call; on js/wasm,
// which has a single thread, this is what lets the others run at all.
func pause() { runtime.Gosched() }

package main

import (
	"context"
	"syscall/js"
	"time"
)

// Go has one thread here, and JavaScript the same one. While a goroutine
// computes, no message of the page arrives and no promise settles, so whatever
// takes long calls yield (the engine between steps, the processor's backend
// between pieces of an operation). It lets the event loop turn, through a
// message rather than a timer, which a hidden tab would get once a second.

// longestHold is how long work may hold the event loop. A turn costs about
// 15 µs.
const longestHold = 8 * time.Millisecond

// lastTurn is when the event loop last turned for yield.
var lastTurn time.Time

// yield lets the event loop turn if the last turn was too long ago.
func (h host) yield(context.Context) { h.breathe() }

func (h host) breathe() {
	if time.Since(lastTurn) < longestHold {
		return
	}
	done := make(chan struct{})
	f := js.FuncOf(func(js.Value, []js.Value) any {
		close(done)
		return nil
	})
	h.v.Call("turn", f)
	<-done
	f.Release()
	lastTurn = time.Now()
}

// Package runlog keeps the record of a training run: one JSON line for every
// step and every event, in a file that is appended to, survives kills, and
// stays in order when a run is resumed. It also writes the scalars as
// TensorBoard event files.
//
// It draws no charts and decides nothing about training. docs/runlog.md
// describes the lines.
//
// Open record.go first (what a line holds), then log.go (writing), read.go
// (reading) and tensorboard.go.
package runlog

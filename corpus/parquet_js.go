//go:build js

package corpus

import (
	"errors"
	"sync/atomic"
)

// openParquet is left out of the browser build, where it would double the size of the program.
func (o *openInput) openParquet(*InputOptions, *atomic.Int64) error {
	return errors.New("parquet files are not read in the browser: use txt, md or jsonl")
}

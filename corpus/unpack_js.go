//go:build js

package corpus

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// newGzip is the standard library's, which is in the browser build anyway.
func newGzip(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }

// newZstd is left out of the browser build, of which it would be a tenth.
func newZstd(io.Reader) (io.ReadCloser, error) {
	return nil, fmt.Errorf("zstd files are not read in the browser: unpack the file, or pack it with gzip (%w)", errors.ErrUnsupported)
}

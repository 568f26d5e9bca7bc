//go:build !js

package corpus

import (
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// zstdMemory bounds what a zstd file may ask for.
const zstdMemory = 256 << 20

func newGzip(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }

func newZstd(r io.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(zstdMemory))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

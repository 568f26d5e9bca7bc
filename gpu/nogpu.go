//go:build !js && !((linux || windows || darwin) && (amd64 || arm64))

package gpu

import (
	"errors"
	"runtime"
)

// noAdapterHint is the advice for a system without any way to a GPU.
const noAdapterHint = "  use --device cpu"

// platformAdapters finds nothing: the binding does not know this system.
func platformAdapters(string) ([]adapter, []string) {
	return nil, []string{"no GPU binding for " + runtime.GOOS + "/" + runtime.GOARCH}
}

func openDriver(adapter, Limits) (driver, error) {
	return nil, errors.New("no GPU binding for " + runtime.GOOS + "/" + runtime.GOARCH)
}

func driverVersion() string { return "" }

//go:build !js && !((linux || windows || darwin) && (amd64 || arm64))

package gpu

import (
	"errors"
	"runtime"
)

// noAdapterHint is the advice for a system without any way to a GPU.
const noAdapterHint = "  use --device cpu"

// platformAdapters finds nothing: the binding does not know this system.
func platformAdapters(string) search {
	return search{probed: []string{"no GPU binding for " + runtime.GOOS + "/" + runtime.GOARCH}}
}

func otherWay(adapter) (adapter, bool) { return adapter{}, false }

func openDriver(adapter, Limits) (driver, error) {
	return nil, errors.New("no GPU binding for " + runtime.GOOS + "/" + runtime.GOARCH)
}

func driverVersion() string { return "" }

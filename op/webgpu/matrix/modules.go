//go:build !js

package matrix

import "embed"

//go:embed *.spv
var modules embed.FS

package matrix

import "embed"

// modules is empty in a browser, which takes WGSL alone.
var modules embed.FS

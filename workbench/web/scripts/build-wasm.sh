#!/bin/sh
# Builds what the tab needs beside the page:
#
#	scripts/build-wasm.sh DIR
#
# writes DIR/tezgah.wasm.gz and .br, the engine as wasm, and DIR/worker.js, the
# script of the worker that runs it, with the loader of the Go toolchain that built
# it. Hosts that hand out packed files send the smaller .br; the worker unpacks the
# .gz of all others itself. Needs Go, Node, and "npm ci" in this folder's parent.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
web=$(dirname "$here")
root=$(cd "$web/../.." && pwd)
out=${1:?usage: build-wasm.sh DIR}
mkdir -p "$out"
out=$(cd "$out" && pwd)
go=${GO:-go}

cd "$root"
wasm="$out/tezgah.wasm"
# Inlining makes the program a seventh larger, so only packages that compute or
# are called from their inner loops have it.
hot="internal/... runtime/... math/... unicode/utf8 hash/... compress/... tezgah/tensor tezgah/op/cpu/... tezgah/bpe"
set -- -gcflags=all=-l
for pattern in $hot; do set -- "$@" "-gcflags=$pattern="; done
GOOS=js GOARCH=wasm CGO_ENABLED=0 "$go" build -trimpath -ldflags="-s -w" -tags simd128 "$@" -o "$wasm" ./cmd/tezgah-web
node -e '
const { readFileSync, writeFileSync, renameSync, unlinkSync } = require("node:fs");
const { brotliCompressSync, constants, gzipSync } = require("node:zlib");
const name = process.argv[1];
const bytes = readFileSync(name);
const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 24, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
for (const [end, packed] of [[".gz", gzipSync(bytes, { level: 9 })], [".br", brotliCompressSync(bytes, { params })]]) {
  writeFileSync(name + ".new", packed);
  renameSync(name + ".new", name + end);
  console.log(`tezgah.wasm ${bytes.length} B, ${end} ${packed.length} B`);
  if (end === ".br" && packed.length >= 2e6) console.error("tezgah.wasm.br is over 2 MB: see docs/log.md, The engine in the tab, for what can be left out");
}
unlinkSync(name);
' "$wasm"

cd "$web"
{
	cat "$("$go" env GOROOT)/lib/wasm/wasm_exec.js"
	node_modules/.bin/esbuild src/worker/worker.ts --bundle --format=iife --target=es2022 --minify --log-level=warning
} >"$out/worker.js.new"
mv "$out/worker.js.new" "$out/worker.js"

#!/bin/sh
# Compiles the kernels with glslang and notes what was made of what. The version
# matters: another may number its results differently.
set -eu
cd "$(dirname "$0")"
glslang=${GLSLANG:-glslang}
want=16.6.0
if ! $glslang --version | head -1 | grep -q ":$want$"; then
  echo "gen.sh: want glslang $want (Debian's glslang-tools), in PATH or named by GLSLANG" >&2
  exit 1
fi
compile() { $glslang -V --quiet --target-env vulkan1.3 -g0 "$@"; }
for source in *.comp; do
  name=${source%.comp}
  compile "$source" -o "${name}_f16.spv"
  compile -DBF16 "$source" -o "${name}_bf16.spv"
  if grep -q NV_CONVERT "$source"; then
    compile -DNV_CONVERT "$source" -o "${name}_nv_f16.spv"
    compile -DNV_CONVERT -DBF16 "$source" -o "${name}_nv_bf16.spv"
  fi
done
sha256sum -- *.comp *.glsl *.spv > SHA256SUMS

# Everything here needs Go alone. Tests that need a GPU are skipped, by name,
# where there is none, unless TEZGAH_REQUIRE_GPU=1 makes that a failure. Tests in
# a browser run with TEZGAH_REQUIRE_BROWSER=1, which needs Node and Chromium.
# .ci/run installs all of it, sets both, and adds test-matrix.

GO ?= go
export CGO_ENABLED = 0

.PHONY: build web test test-gpu test-matrix test-browser test-web check bench bench-gemm

build:
	$(GO) build -o bin/tezgah ./cmd/tezgah

# The workbench's page with the engine for the tab, into workbench/web/dist, from
# where `make build` takes it into the program. Needs Node and npm.
web:
	cd workbench/web && npm ci --no-audit --no-fund --silent && npm run --silent check && node build.mjs
	workbench/web/scripts/build-wasm.sh workbench/web/dist
	cd workbench/web && node build.mjs compress

# With a GPU, its packages run in test-gpu, the first time under the validation layer:
# a run without it before that would show nothing more. Commands and training are
# tested on the GPU without the layer here.
GPU_TESTS = ./gpu/... ./op/webgpu/...
test: check
	@if [ "$$TEZGAH_REQUIRE_GPU" = 1 ]; then gpu="$$($(GO) list $(GPU_TESTS))"; fi; \
	$(GO) test $$($(GO) list ./... | grep -vxF "$${gpu:-none}")
	@if [ "$$TEZGAH_REQUIRE_GPU" = 1 ]; then $(MAKE) test-gpu; fi
	@if [ "$$TEZGAH_REQUIRE_BROWSER" = 1 ]; then $(MAKE) test-browser test-web; \
	else echo "tests in a browser were left out: set TEZGAH_REQUIRE_BROWSER=1 to run them"; fi

# Straight on Vulkan under its validation layer, and the other way to a GPU. Both run
# the same machine code of the same kernels, so the second leaves out what only runs
# the suite's cases again with other kernels: layouts, 16-bit tensors, and the loss and
# norms in shapes of their own.
OTHER_WAY_SKIP = ^TestOtherShapes$$|^TestOperandTensors
test-gpu:
	@$(call validated,$(GPU_TESTS))
	TEZGAH_BACKEND=webgpu $(GO) test -skip '$(OTHER_WAY_SKIP)' $(GPU_TESTS)

# Runs tests under the validation layer, which must have nothing to say.
define validated
out=$$(mktemp); TEZGAH_VALIDATE=1 $(GO) test -count=1 -v $(1) >$$out 2>&1 || { cat $$out; exit 1; }; \
if grep -E 'Validation (Error|Warning)|VUID-' $$out; then echo "the validation layer complains"; exit 1; fi; \
grep '^ok' $$out; rm -f $$out
endef

# The matrix units, which llvmpipe has in a newer Mesa than Debian 12's: in a newer one
# that is unpacked and not installed, with its validation layer. Left out are tests that
# these units do not touch and that take long, and attention with large heads: its
# kernels for the units llvmpipe compiles for minutes, and its float32 kernels are
# those of smaller heads with another constant and run in test-gpu. A machine that cannot have that
# Mesa is told so and goes on, unless TEZGAH_REQUIRE_MATRIX=1 makes it a failure.
MATRIX_SKIP = ^TestSuiteLeast$$|^TestOtherShapes$$|^TestOperandTensors(Least|AnyShape|TwoPasses)$$|^TestSuite$$/^attention/D(64|80|128)_.*F16|^TestSuite$$/^attention/D(48|80|96|128)_docs_[0-9]+_std_1$$
MATRIX_TESTS = -skip '$(MATRIX_SKIP)' ./gpu/... ./op/webgpu
test-matrix:
	@mesa=$$(scripts/newer-mesa/get 2>&1); case $$? in \
	0) cat $$mesa/about;; \
	75) echo "tests of the matrix units were left out: $$mesa"; test "$$TEZGAH_REQUIRE_MATRIX" != 1; exit;; \
	*) echo "$$mesa"; exit 1;; \
	esac; \
	export TEZGAH_REQUIRE_MATRIX=1; $(call validated,-exec "$(CURDIR)/scripts/newer-mesa/run $$mesa" $(MATRIX_TESTS))

# Compiled to wasm, in headless Chromium: the device layer and the operations; and
# what stands on files or the processor's vectors, in a worker as in the workbench's
# tab, over the browser's file system.
BROWSER_TESTS = ./gpu ./op/webgpu
TAB_TESTS = ./cmd/tezgah-web ./op/cpu ./op/cpu/internal/kern ./checkpoint ./runlog ./generate ./train
IN_BROWSER = -exec "node $(CURDIR)/scripts/wasm-browser-exec/run.mjs"
test-browser:
	cd scripts/wasm-browser-exec && npm ci --no-audit --no-fund --silent
	cd workbench/web && npm ci --no-audit --no-fund --silent
	GOOS=js GOARCH=wasm WASM_TIMEOUT_S=1800 $(GO) test -timeout 30m $(IN_BROWSER) $(BROWSER_TESTS)
	GOOS=js GOARCH=wasm WASM_FS=opfs $(GO) test -p 1 -tags simd128 $(IN_BROWSER) $(TAB_TESTS)
	GOOS=js GOARCH=wasm WASM_FS=nomove $(GO) test $(IN_BROWSER) ./cmd/tezgah-web

# The page: its functions in Node, and the whole of it in headless Chromium against
# a mock, a real server, and the engine in the tab.
test-web: web
	cd workbench/web && TEZGAH_WEB_DIST=$(CURDIR)/workbench/web/dist node test/run.mjs

# Formatting, vet, and the platforms that must always build.
check:
	@fmt=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$fmt" || { echo "gofmt would change: $$fmt"; exit 1; }
	$(GO) vet ./...
	$(GO) build ./...
	GOOS=windows GOARCH=amd64 $(GO) build ./...
	GOOS=darwin GOARCH=arm64 $(GO) build ./...
	GOOS=js GOARCH=wasm $(GO) build ./...
	GOOS=js GOARCH=wasm $(GO) vet -tags simd128 ./op/cpu/... ./cmd/tezgah-web

bench: bench-gemm
	$(GO) run ./cmd/tezgah bench

# Products beside OpenBLAS, where a C compiler and OpenBLAS are there; without
# them the products beside the peak alone.
bench-gemm:
	@mkdir -p bin; if cc -O2 -o bin/sgemm bench/openblas/sgemm.c -lopenblas 2>/dev/null; then openblas="-openblas bin/sgemm"; \
	else echo "no C compiler or no OpenBLAS: products beside the peak alone"; fi; \
	$(GO) run ./op/cpu/internal/kern/gemmbench $$openblas

# Everything here needs Go alone; tests that need a GPU or a browser are left
# out, by name, unless TEZGAH_REQUIRE_GPU=1 or TEZGAH_REQUIRE_BROWSER=1 is set
# (then a missing one is a failure). .ci/run installs both and sets both.

GO ?= go
export CGO_ENABLED = 0

.PHONY: build test check bench fuzz

build:
	$(GO) build -o bin/tezgah ./cmd/tezgah

test: check
	$(GO) test ./...

# Formatting, vet, and the platforms that must always build.
check:
	@fmt=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$fmt" || { echo "gofmt would change: $$fmt"; exit 1; }
	$(GO) vet ./...
	$(GO) build ./...
	GOOS=windows GOARCH=amd64 $(GO) build ./...
	GOOS=darwin GOARCH=arm64 $(GO) build ./...
	GOOS=js GOARCH=wasm $(GO) build ./...

bench:
	$(GO) run ./cmd/tezgah bench

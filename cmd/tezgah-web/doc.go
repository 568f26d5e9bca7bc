// Command tezgah-web is the workbench's engine in a browser tab: package
// workbench/engine compiled to wasm, in a dedicated worker, over the
// origin-private file system and the browser's WebGPU.
//
// It has no interface of its own. The worker's script (workbench/web/src/worker)
// gives it what a program expects of its system: files, through the object that
// Go's syscall package calls, and the requests of docs/api.md that the page
// sends. Open main_js.go first, then serve_js.go (requests), devices_js.go
// (backends) and yield_js.go (how one thread both computes and answers).
package main

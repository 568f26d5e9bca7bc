// Package checkpoint reads and writes models: safetensors files, the .llm file
// (a safetensors file whose metadata carries configuration, vocabulary and
// training state), and the run folder that holds a run's checkpoints.
//
// It promises three things. A save is atomic: a file under its final name is
// always complete, whatever kills the process. A file is refused before it is
// read: lengths, types, shapes and offsets are checked against the file's real
// size before anything they describe is allocated. And damage is found: every
// tensor of an .llm file, and its header, has a CRC-32C.
//
// It knows nothing of models: a configuration travels as JSON, a tensor as a
// name, a type, a shape and bytes.
//
// Open tensor.go first (what a tensor in a file is), then writer.go and
// file.go (safetensors out and in), llm.go (what .llm adds), atomic.go and
// dir.go (the run folder). Models of other programs: llama.go has every
// tensor's name in each format; hf_save.go and hf_open.go are transformers'
// folders, peft.go adapters, gguf.go llama.cpp's file. docs/formats.md draws
// the bytes.
package checkpoint

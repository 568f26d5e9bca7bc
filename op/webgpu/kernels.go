package webgpu

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tezgah/gpu"
	"tezgah/op/webgpu/internal/wgsl"
)

//go:embed kernels/*.wgsl
var kernelFiles embed.FS

// library reads the kernel files once.
var library = sync.OnceValues(func() (*wgsl.Folder, error) {
	sub, err := fs.Sub(kernelFiles, "kernels")
	if err != nil {
		return nil, err
	}
	return wgsl.Load(sub)
})

// define sets a constant of a kernel.
type define = wgsl.Define

// variant names one compiled form of a kernel: its name and the values of its
// constants, in an order that the launcher knows. It is a map key, so that
// finding a kernel again costs a look-up.
type variant struct {
	name string
	c    [10]int32
}

// kernel is a variant and its pipelines, of which there are few.
type kernel struct {
	name    string
	label   string
	defines []define
	module  *gpu.Module // instead of WGSL: a kernel for the matrix units
	forms   []form
}

// form is a compiled kernel. writable says which read bindings are declared
// read_write, a bit each: for calls whose inputs and outputs lie in one buffer.
type form struct {
	writable uint32
	pipeline *gpu.Pipeline
}

// kernel finds a variant. defines is called only the first time.
func (b *Backend) kernel(v variant, defines func() []define) *kernel {
	k, ok := b.kernels[v]
	if !ok {
		k = &kernel{name: v.name, label: v.name}
		if defines != nil {
			k.defines = defines()
		}
		b.kernels[v] = k
	}
	return k
}

// plain finds a kernel without constants to set.
func (b *Backend) plain(name string) *kernel { return b.kernel(variant{name: name}, nil) }

// pipeline returns the compiled kernel; writable has a bit for every read
// binding that must be declared read_write.
func (b *Backend) pipeline(k *kernel, writable uint32) (*gpu.Pipeline, error) {
	for i := range k.forms {
		if f := &k.forms[i]; f.writable == writable {
			return f.pipeline, nil
		}
	}
	p, err := b.compile(k, writable)
	if err != nil {
		return nil, err
	}
	k.forms = append(k.forms, form{writable, p})
	b.compiled++
	return p, nil
}

// prepare compiles kernels side by side where the device can. What fails is reported
// when the kernel is used.
func (b *Backend) prepare(kernels []*kernel) {
	var list []gpu.Source
	for _, k := range kernels {
		if len(k.forms) > 0 {
			continue
		}
		s := gpu.Source{Label: k.label, Module: k.module}
		if k.module == nil {
			var err error
			if s.WGSL, err = assemble(k.name, b.features, k.defines, 0); err != nil {
				continue
			}
		}
		list = append(list, s)
	}
	b.dev.Prepare(list)
}

func (b *Backend) compile(k *kernel, writable uint32) (*gpu.Pipeline, error) {
	if k.module != nil {
		m := *k.module
		m.Slots = slices.Clone(m.Slots)
		for i := range m.Slots {
			if writable>>i&1 != 0 {
				m.Slots[i].Kind = gpu.ReadWrite
			}
		}
		return b.dev.NewModule(k.label, m)
	}
	source, err := b.source(k, writable)
	if err != nil {
		return nil, fmt.Errorf("webgpu: %w", err)
	}
	return b.dev.NewPipeline(k.label, source)
}

// source is assemble for a kernel. Rehearsals remember it together, because a device
// is rehearsed on again and again where nothing else takes any time.
func (b *Backend) source(k *kernel, writable uint32) (string, error) {
	if b.sources == nil {
		return assemble(k.name, b.features, k.defines, writable)
	}
	key := fmt.Sprint(k.name, k.defines, writable)
	if s, ok := b.sources.Load(key); ok {
		return s.(string), nil
	}
	s, err := assemble(k.name, b.features, k.defines, writable)
	if err == nil {
		b.sources.Store(key, s)
	}
	return s, err
}

// assemble gives the final source of a kernel.
func assemble(name string, f wgsl.Features, defines []define, writable uint32) (string, error) {
	lib, err := library()
	if err != nil {
		return "", err
	}
	source, err := lib.Source(name, f, defines...)
	if err != nil {
		return "", err
	}
	for i := 0; writable>>i != 0; i++ {
		if writable>>i&1 != 0 {
			at := fmt.Sprintf("@binding(%d) var<storage, read>", i)
			source = strings.Replace(source, at, strings.Replace(at, "read>", "read_write>", 1), 1)
		}
	}
	return unroll(source)
}

// u is a define of an unsigned number, flag one of a bool.
func u(name string, v int) define {
	return define{Name: name, Value: fmt.Sprintf("%du", v)}
}

func flag(name string, v bool) define {
	return define{Name: name, Value: strconv.FormatBool(v)}
}

// bit is 1 for true.
func bit(v bool) int32 {
	if v {
		return 1
	}
	return 0
}

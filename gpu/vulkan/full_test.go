//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// fullGPU is an allocator on a driver with so much memory of each type.
func fullGPU(room map[uint32]uint64, types ...vk.MemoryPropertyFlags) *allocator {
	m := &allocator{}
	m.types.MemoryTypeCount = uint32(len(types))
	for i, f := range types {
		m.types.MemoryTypes[i].PropertyFlags = f
	}
	taken := map[vk.DeviceMemory][2]uint64{}
	m.grab = func(kind uint32, size uint64) (vk.DeviceMemory, unsafe.Pointer, error) {
		if size > room[kind] {
			return 0, nil, check("vkAllocateMemory of many bytes", vk.ErrorOutOfDeviceMemory)
		}
		room[kind] -= size
		h := vk.DeviceMemory(len(taken) + 1)
		taken[h] = [2]uint64{uint64(kind), size}
		return h, nil, nil
	}
	m.give = func(h vk.DeviceMemory) { room[uint32(taken[h][0])] += taken[h][1] }
	return m
}

func needs(size uint64) vk.MemoryRequirements {
	return vk.MemoryRequirements{Size: vk.DeviceSize(size), Alignment: 256, MemoryTypeBits: 3}
}

// TestFullMemory: where a block does not fit a small piece takes what it needs; then
// the error says what was tried, nothing is counted that is not there, and freed
// memory is found again.
func TestFullMemory(t *testing.T) {
	room := map[uint32]uint64{0: blockSize + 5000}
	m := fullGPU(room, deviceLocal)
	m.discrete = true
	take := func(size uint64) (piece, error) { return m.alloc(needs(size), 0, deviceLocal) }
	a, err := take(ownBlock) // an allocation of its own
	if err != nil {
		t.Fatal(err)
	}
	b, err := take(4000) // of a block that does not fit any more
	if err != nil {
		t.Fatalf("a small piece with less than a block free: %v", err)
	}
	if want := uint64(ownBlock + 4000); m.bytes != want {
		t.Errorf("%d bytes are taken, want %d", m.bytes, want)
	}
	_, err = take(blockSize)
	var e *Error
	if !errors.As(err, &e) || !e.OutOfMemory() || e.Lost() || !strings.Contains(err.Error(), "out of GPU memory") {
		t.Errorf("got %v, want that the GPU is out of memory", err)
	}
	if want := uint64(ownBlock + 4000); m.bytes != want {
		t.Errorf("after it %d bytes are taken, want %d", m.bytes, want)
	}
	m.release(a)
	if c, err := take(blockSize); err != nil {
		t.Errorf("after releasing enough: %v", err)
	} else {
		m.release(c)
	}
	m.release(b)
	if m.bytes != 0 || room[0] != blockSize+5000 {
		t.Errorf("%d bytes are still taken, the driver has %d", m.bytes, room[0])
	}
}

// TestFullGPUDoesNotSpill: a GPU with memory of its own does not use the host's in
// its place, one that shares the host's does, and staging memory may lie in either.
func TestFullGPUDoesNotSpill(t *testing.T) {
	for _, discrete := range []bool{true, false} {
		m := fullGPU(map[uint32]uint64{1: 1 << 30}, deviceLocal, hostVisible|coherent|hostCached)
		m.discrete = discrete
		p, err := m.alloc(needs(4096), 0, deviceLocal)
		if discrete != (err != nil) {
			t.Errorf("discrete %v: %v", discrete, err)
		}
		if err == nil && p.block.kind != 1 {
			t.Errorf("the piece lies in memory type %d", p.block.kind)
		}
		if p, err := m.alloc(needs(4096), hostVisible|coherent, hostCached); err != nil || p.block.kind != 1 {
			t.Errorf("staging memory: %v", err)
		}
	}
	m := fullGPU(map[uint32]uint64{0: 1 << 30}, hostVisible) // a driver that announces no memory of its own
	m.discrete = true
	if _, err := m.alloc(needs(4096), 0, deviceLocal); err != nil {
		t.Errorf("without any memory on the GPU: %v", err)
	}
	if _, err := m.alloc(vk.MemoryRequirements{Size: 4096, MemoryTypeBits: 1 << 7}, 0, deviceLocal); err == nil {
		t.Error("a buffer that fits no type was given one")
	}
}

// TestErrorsAreSorted lists results of Vulkan and what they mean for the caller.
func TestErrorsAreSorted(t *testing.T) {
	for code, want := range map[vk.Result][2]bool{
		vk.ErrorDeviceLost:           {true, false},
		vk.ErrorOutOfDeviceMemory:    {false, true},
		vk.ErrorOutOfHostMemory:      {false, true},
		tooManyObjects:               {false, true},
		outOfPoolMemory:              {false, true},
		vk.ErrorFeatureNotPresent:    {false, false},
		vk.ErrorIncompatibleDriver:   {false, false},
		vk.ErrorInitializationFailed: {false, false},
	} {
		var e *Error
		if err := check("vkTest", code); !errors.As(err, &e) || e.Lost() != want[0] || e.OutOfMemory() != want[1] || !strings.HasPrefix(err.Error(), "vkTest: ") {
			t.Errorf("%d became %v", code, err)
		}
	}
	if check("vkTest", vk.Success) != nil {
		t.Error("success became an error")
	}
}

// TestCacheFileThatCannotBeWritten: no folder, a folder in the file's place, and
// where rights count a folder without them; what was there stays.
func TestCacheFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "new", "pipelines.bin")
	if err := replaceFile(file, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(file, "below"), []byte("x")); err == nil {
		t.Error("a file was written below a file")
	}
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(taken, []byte("x")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if runtime.GOOS != "windows" && os.Getuid() != 0 {
		if err := os.Chmod(filepath.Dir(file), 0o500); err != nil {
			t.Fatal(err)
		}
		if err := replaceFile(file, []byte("second")); err == nil {
			t.Error("a folder without rights was written to")
		}
		os.Chmod(filepath.Dir(file), 0o700)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "first" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	for _, folder := range []string{dir, filepath.Dir(file)} {
		if left, _ := filepath.Glob(filepath.Join(folder, "new-*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

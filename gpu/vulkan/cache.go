//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// pipelineCache keeps what the driver compiled. The file begins with a header of
// ours, because drivers have crashed on files that were cut short or came from
// another version of themselves: magic, the adapter's key, the length and a
// CRC-32C of the rest. A file that does not fit is as good as none.
type pipelineCache struct {
	handle vk.PipelineCache
	file   string
	made   atomic.Int32 // pipelines since the file was read
}

const cacheMagic = "tezgah pipelines 1\n"

// cacheKey names a device with its driver.
func cacheKey(p *properties) [32]byte {
	c := &p.core.Properties
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, []uint32{c.VendorID, c.DeviceID, c.DriverVersion, c.ApiVersion})
	h.Write(c.PipelineCacheUUID[:])
	h.Write([]byte(driverText(p)))
	return [32]byte(h.Sum(nil))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c *pipelineCache) open(d *Device, file string) {
	c.file = file
	var data []byte
	if file != "" {
		content, _ := os.ReadFile(file)
		data = unwrap(content, d.a.key)
	}
	info := vk.PipelineCacheCreateInfo{SType: vk.StructureTypePipelineCacheCreateInfo, InitialDataSize: uintptr(len(data))}
	if len(data) > 0 {
		info.PInitialData = (*uintptr)(unsafe.Pointer(&data[0]))
	}
	code := d.cmds.CreatePipelineCache(d.handle, &info, nil, &c.handle)
	if code != vk.Success && len(data) > 0 { // the driver does not want its own words
		info.InitialDataSize, info.PInitialData = 0, nil
		code = d.cmds.CreatePipelineCache(d.handle, &info, nil, &c.handle)
	}
	if code != vk.Success { // every pipeline is compiled anew; nothing else changes
		c.handle = 0
	}
}

// unwrap returns the driver's part of a cache file, nil if it is not whole or
// not this driver's.
func unwrap(content []byte, key [32]byte) []byte {
	rest, ok := bytes.CutPrefix(content, []byte(cacheMagic))
	if !ok || len(rest) < 32+12 || !bytes.Equal(rest[:32], key[:]) {
		return nil
	}
	size, sum, data := binary.LittleEndian.Uint64(rest[32:]), binary.LittleEndian.Uint32(rest[40:]), rest[44:]
	if size != uint64(len(data)) || sum != crc32.Checksum(data, castagnoli) {
		return nil
	}
	return data
}

func wrap(data []byte, key [32]byte) []byte {
	out := append([]byte(cacheMagic), key[:]...)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(data)))
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(data, castagnoli))
	return append(out, data...)
}

// close writes the cache if there is something new in it.
func (c *pipelineCache) close(d *Device) {
	if c.handle == 0 {
		return
	}
	if c.file != "" && c.made.Load() > 0 {
		var size uintptr
		if d.cmds.GetPipelineCacheData(d.handle, c.handle, &size, nil) == vk.Success && size > 0 {
			data := make([]byte, size)
			if d.cmds.GetPipelineCacheData(d.handle, c.handle, &size, (*uintptr)(unsafe.Pointer(&data[0]))) == vk.Success {
				_ = replaceFile(c.file, wrap(data[:size], d.a.key)) // losing it costs time at the next start, no more
			}
		}
	}
	d.cmds.DestroyPipelineCache(d.handle, c.handle, nil)
	c.handle = 0
}

// replaceFile writes a file under another name and renames it, so that a reader
// never sees half of one.
func replaceFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"unsafe"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

const (
	stagingBytes = 8 << 20   // one staging buffer for large uploads
	maxStaging   = 4         // of them
	maxReadBytes = 32 << 20  // largest staging buffer for downloads
	maxOwnBytes  = 256 << 10 // small uploads of a batch, which go through its own staging memory
)

// staging is a buffer that host and GPU see.
type staging struct {
	buffer *Buffer
	memory []byte
	used   uint64
	batch  uint64 // last batch that uses it
}

// newStaging makes a staging buffer in memory that the host's caches hold: reads
// from write-combined memory are many times slower.
func (d *Device) newStaging(size uint64) (*staging, error) {
	b, err := d.newBuffer(size, hostCached, hostVisible|coherent)
	if err != nil {
		return nil, err
	}
	return &staging{buffer: b, memory: unsafe.Slice((*byte)(unsafe.Add(b.memory.block.host, b.memory.off)), size)}, nil
}

func (s *staging) free(d *Device) {
	if s != nil {
		d.FreeBuffer(s.buffer)
	}
}

// room returns a staging buffer with space for an upload: the current one, one
// that the GPU is done with, a new one, or the oldest after a wait.
func (d *Device) room() (*staging, error) {
	if n := len(d.up); n > 0 {
		if s := d.up[n-1]; s.used < stagingBytes {
			return s, nil
		}
		if len(d.up) == maxStaging && d.up[0].batch > d.Done() {
			if err := d.Wait(); err != nil {
				return nil, err
			}
		}
		if s := d.up[0]; s.batch <= d.Done() {
			d.up = append(append(d.up[:0], d.up[1:]...), s)
			s.used = 0
			return s, nil
		}
	}
	s, err := d.newStaging(stagingBytes)
	if err != nil {
		return nil, err
	}
	d.up = append(d.up, s)
	return s, nil
}

// Upload writes data, a multiple of 4 bytes, at offset. The data is copied
// before it returns; the write takes its place among the recorded commands.
func (d *Device) Upload(dst *Buffer, offset uint64, data []byte) error {
	if from := (len(d.list.uploads) + 15) &^ 15; from+len(data) <= maxOwnBytes {
		d.uploadOwn(dst, offset, from, data)
		return nil
	}
	for len(data) > 0 {
		s, err := d.room()
		if err != nil {
			return err
		}
		n := uint64(copy(s.memory[s.used:], data))
		d.Copy(dst, offset, s.buffer, s.used, n)
		s.used, s.batch = min(s.used+(n+15)&^15, stagingBytes), d.Pending()
		data, offset = data[n:], offset+n
		if s.used == stagingBytes {
			if err := d.Submit(); err != nil {
				return err
			}
		}
	}
	return nil
}

// uploadOwn records an upload that is the same command in every step, whatever
// the data: it goes through byte from of the batch's own staging memory.
func (d *Device) uploadOwn(dst *Buffer, offset uint64, from int, data []byte) {
	d.list.uploads = append(d.list.uploads, make([]byte, from-len(d.list.uploads))...)
	d.list.uploads = append(d.list.uploads, data...)
	n := uint64(len(data))
	d.add(command{kind: upload, dst: dst, from: uint64(from), to: offset, n: n}, access{dst, offset, offset + n, true})
}

// Read is one range to read back, in multiples of 4 bytes.
type Read struct {
	Buffer *Buffer
	Offset uint64
	Dst    []byte
}

// Download submits, waits, and fills every Dst.
func (d *Device) Download(reads []Read) error {
	total := uint64(0)
	for _, r := range reads {
		total += uint64(len(r.Dst))
	}
	s, err := d.readRoom(total)
	if err != nil {
		return err
	}
	var parts [][]byte // what the staging buffer holds, in order
	for _, r := range reads {
		for len(r.Dst) > 0 {
			n := min(uint64(len(r.Dst)), uint64(len(s.memory))-s.used)
			d.Copy(s.buffer, s.used, r.Buffer, r.Offset, n)
			parts = append(parts, r.Dst[:n])
			r.Dst, r.Offset, s.used = r.Dst[n:], r.Offset+n, s.used+n
			if s.used == uint64(len(s.memory)) {
				if err := d.fetch(s, parts); err != nil {
					return err
				}
				parts = parts[:0]
			}
		}
	}
	return d.fetch(s, parts)
}

// readRoom returns the staging buffer for downloads, grown to n bytes or the
// most there is.
func (d *Device) readRoom(n uint64) (*staging, error) {
	size := uint64(64 << 10)
	for size < min(n, maxReadBytes) {
		size *= 2
	}
	if d.down != nil && uint64(len(d.down.memory)) >= size {
		return d.down, nil
	}
	s, err := d.newStaging(size)
	if err != nil {
		return nil, err
	}
	d.down.free(d) // every download waits, so it is free
	d.down = s
	return s, nil
}

// hostBarrier makes copies visible to the host.
var hostBarrier = vk.MemoryBarrier{SType: vk.StructureTypeMemoryBarrier,
	SrcAccessMask: vk.AccessFlags(vk.AccessTransferWriteBit), DstAccessMask: vk.AccessFlags(vk.AccessHostReadBit)}

// fetch waits and copies the staging buffer to where its parts belong.
func (d *Device) fetch(s *staging, parts [][]byte) error {
	if !d.list.empty() {
		d.add(command{kind: toHost})
	}
	s.used = 0
	if err := d.Wait(); err != nil {
		return err
	}
	from := s.memory
	for _, p := range parts {
		from = from[copy(p, from):]
	}
	return nil
}

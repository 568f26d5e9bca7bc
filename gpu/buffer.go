package gpu

import (
	"fmt"
	"unsafe"
)

// Buffer is memory of a device.
type Buffer struct {
	dev    *Device
	label  string
	size   uint64 // as asked for, bytes
	bytes  uint64 // as allocated, a multiple of 4
	handle any
	id     uint64              // unique in the device, part of bind group keys
	groups map[*group]struct{} // cached bind groups that use it
}

// NewBuffer makes a buffer of sizeBytes (1 to Limits.BufferSize), all zero.
// The label names it in errors. Errors: ErrValidation for the size,
// ErrOutOfMemory.
func (d *Device) NewBuffer(label string, sizeBytes uint64) (b *Buffer, err error) {
	what := fmt.Sprintf("new buffer %q of %d bytes", label, sizeBytes)
	if err := d.use(what); err != nil {
		return nil, err
	}
	defer rescue(what, &err)
	bytes := (sizeBytes + 3) &^ 3
	if sizeBytes == 0 || sizeBytes > d.limits.BufferSize || bytes > d.limits.BufferSize {
		return nil, invalid("%s: the size must be 1 to %d on %s; split it", what, d.limits.BufferSize, d.info.Name)
	}
	d.collect()
	handle, err := d.drv.newBuffer(label, bytes, bytes <= d.limits.UniformSize)
	if err != nil {
		return nil, d.failed(what, err)
	}
	d.nextID++
	b = &Buffer{dev: d, label: label, size: sizeBytes, bytes: bytes, handle: handle, id: d.nextID}
	d.buffers[b] = struct{}{}
	if live := d.liveBytes.Add(int64(bytes)); live > d.peakBytes.Load() {
		d.peakBytes.Store(live)
	}
	return b, nil
}

// Label is the name given at creation.
func (b *Buffer) Label() string { return b.label }

// Size is the size asked for at creation, in bytes.
func (b *Buffer) Size() uint64 { return b.size }

// Release frees the buffer once the GPU is done with it. Work that is already
// recorded may still use it. Releasing twice or releasing nil does nothing.
func (b *Buffer) Release() {
	if b == nil || b.handle == nil {
		return
	}
	d := b.dev
	for g := range b.groups {
		d.groups.drop(d, g)
	}
	handle := b.handle
	b.handle = nil
	delete(d.buffers, b)
	d.liveBytes.Add(-int64(b.bytes))
	d.discard(func() { d.drv.freeBuffer(handle) })
}

// Upload writes data at offset. The data is copied before Upload returns. The
// offset must be a multiple of 4; so must the length, unless the data ends
// where the buffer ends.
func (d *Device) Upload(b *Buffer, offset uint64, data []byte) error {
	return d.upload(b, offset, data, false)
}

func (d *Device) upload(b *Buffer, offset uint64, data []byte, fresh bool) (err error) {
	const what = "upload"
	n := uint64(len(data))
	if err := d.checkRange(what, b, offset, n); err != nil || n == 0 {
		return err
	}
	defer rescue(what, &err)
	tail := n % 4
	if offset%4 != 0 || (tail != 0 && offset+n != b.size) {
		return invalid("%s to %q: offset %d and length %d must be multiples of 4", what, b.label, offset, n)
	}
	whole := n - tail
	if whole > 0 {
		if err := d.drv.upload(b.handle, offset, data[:whole], fresh); err != nil {
			return d.failed(what+" to "+b.label, err)
		}
	}
	if tail > 0 {
		var last [4]byte
		copy(last[:], data[whole:])
		if err := d.drv.upload(b.handle, offset+whole, last[:], fresh); err != nil {
			return d.failed(what+" to "+b.label, err)
		}
	}
	return nil
}

// Read is one range to read back.
type Read struct {
	Buffer *Buffer
	Offset uint64 // bytes
	Dst    []byte // its length says how much
}

// Download reads len(dst) bytes at offset, after all that was recorded before
// it is done. It waits for the GPU: read little, and seldom.
func (d *Device) Download(b *Buffer, offset uint64, dst []byte) error {
	return d.DownloadAll(Read{b, offset, dst})
}

// DownloadAll reads several ranges with one wait.
func (d *Device) DownloadAll(reads ...Read) (err error) {
	const what = "download"
	list := make([]driverRead, 0, len(reads))
	type odd struct{ from, to []byte }
	var odds []odd
	for _, r := range reads {
		n := uint64(len(r.Dst))
		if err := d.checkRange(what, r.Buffer, r.Offset, n); err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		first, end := r.Offset&^3, (r.Offset+n+3)&^3
		dst := r.Dst
		if first != r.Offset || end != r.Offset+n {
			dst = make([]byte, end-first)
			odds = append(odds, odd{dst[r.Offset-first:][:n], r.Dst})
		}
		list = append(list, driverRead{r.Buffer.handle, first, dst})
	}
	if len(list) == 0 {
		return nil
	}
	defer rescue(what, &err)
	d.handOver()
	if err := d.drv.download(list); err != nil {
		return d.failed(what+" of "+reads[0].Buffer.label, err)
	}
	for _, o := range odds {
		copy(o.to, o.from)
	}
	d.collect()
	return nil
}

// Copy copies n bytes from one buffer to another. Offsets and n are multiples
// of 4. WebGPU does not copy within one buffer.
func (d *Device) Copy(dst *Buffer, dstOffset uint64, src *Buffer, srcOffset, n uint64) (err error) {
	const what = "copy"
	if err := d.checkRange(what, src, srcOffset, n); err != nil {
		return err
	}
	if err := d.checkRange(what, dst, dstOffset, n); err != nil || n == 0 {
		return err
	}
	defer rescue(what, &err)
	if dstOffset%4 != 0 || srcOffset%4 != 0 || n%4 != 0 {
		return invalid("%s from %q to %q: offsets %d and %d and length %d must be multiples of 4",
			what, src.label, dst.label, srcOffset, dstOffset, n)
	}
	if src == dst {
		return invalid("%s within %q: WebGPU forbids it; copy through another buffer", what, src.label)
	}
	return d.failed(what+" from "+src.label+" to "+dst.label,
		d.drv.copyBuffer(dst.handle, dstOffset, src.handle, srcOffset, n))
}

// Clear sets n bytes at offset to zero; both are multiples of 4, unless the
// range ends where the buffer ends.
func (d *Device) Clear(b *Buffer, offset, n uint64) (err error) {
	const what = "clear"
	if err := d.checkRange(what, b, offset, n); err != nil || n == 0 {
		return err
	}
	defer rescue(what, &err)
	if offset+n == b.size {
		n = b.bytes - offset
	}
	if offset%4 != 0 || n%4 != 0 {
		return invalid("%s of %q: offset %d and length %d must be multiples of 4", what, b.label, offset, n)
	}
	return d.failed(what+" of "+b.label, d.drv.clear(b.handle, offset, n))
}

// checkRange checks that the device is usable and the range inside a live
// buffer of it.
func (d *Device) checkRange(what string, b *Buffer, offset, n uint64) error {
	if err := d.use(what); err != nil {
		return err
	}
	switch {
	case b == nil:
		return invalid("%s: the buffer is nil", what)
	case b.dev != d:
		return invalid("%s: buffer %q belongs to another device", what, b.label)
	case b.handle == nil:
		return invalid("%s: buffer %q is released", what, b.label)
	case offset > b.size || n > b.size-offset:
		return invalid("%s: bytes %d to %d are outside of %q, which has %d", what, offset, offset+n, b.label, b.size)
	}
	return nil
}

// Number is what buffers hold.
type Number interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// Bytes views numbers as the bytes that Upload and Download take; it copies
// nothing. GPUs are little-endian, and so must the host be.
func Bytes[T Number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

package gpu

// A driver is what a platform must provide. All recording methods take effect
// in call order. Handles are the platform's own objects. Only driver errors
// that are already classified (see errors.go) leave an implementation.
//
// Implementations: halDriver (native.go) and jsDriver (js.go).
type driver interface {
	// newBuffer makes a buffer of size bytes (a multiple of 4) filled with
	// zeros. uniform asks for one that uniforms can be bound from.
	newBuffer(label string, size uint64, uniform bool) (any, error)
	freeBuffer(buffer any)

	// newPipeline compiles one entry point. slots are the bindings of group 0,
	// in order, without gaps; a driver whose platform does not check the sizes
	// of bindings sets minSize in them.
	newPipeline(label, source, entry string, slots []Slot) (any, error)
	freePipeline(pipeline any)

	newGroup(label string, pipeline any, ranges []driverRange) (any, error)
	freeGroup(group any)

	dispatch(pipeline, group any, x, y, z uint32) error
	copyBuffer(dst any, dstOffset uint64, src any, srcOffset, n uint64) error
	clear(buffer any, offset, n uint64) error

	// upload copies data (a multiple of 4 bytes) into the buffer before it
	// returns. fresh says that nothing recorded and not submitted uses this
	// range, so that the driver need not submit first.
	upload(buffer any, offset uint64, data []byte, fresh bool) error

	// download hands over what is recorded, waits, and fills every dst.
	// Offsets and lengths are multiples of 4.
	download(reads []driverRead) error

	// submit hands recorded work to the GPU; wait also waits until it is done.
	submit() error
	wait() error

	// startTiming makes the next n dispatches note when they start and end;
	// stopTiming waits and returns these times in nanoseconds, in pairs.
	startTiming(n int) error
	stopTiming() ([]float64, error)

	// pending is the number of the batch now being recorded (a resource used
	// now may be freed once done reaches it); done that of the last finished.
	pending() uint64
	done() uint64

	// close waits for the GPU and frees the device. All resources are freed by
	// then.
	close()
}

// driverRange is one bound range of a buffer.
type driverRange struct {
	buffer       any
	offset, size uint64
}

// driverRead is one range to read back.
type driverRead struct {
	buffer any
	offset uint64
	dst    []byte
}

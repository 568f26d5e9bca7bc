package gpu

// NewRehearsal returns a device that takes every call, checks it as any other
// does, and does nothing: buffers have a size and no memory, kernels are looked
// at and not compiled, and what is read back stays as it was. A program can play
// its calls through on one to learn what memory they would take, without a GPU
// and within milliseconds.
func NewRehearsal(info AdapterInfo, limits Limits, features Features) *Device {
	d := newDevice(info, limits, &rehearsal{})
	d.features = features
	return d
}

// rehearsal is the driver that does nothing. Only its handles are there.
type rehearsal struct{}

func (*rehearsal) newBuffer(string, uint64, bool) (any, error)             { return nothing, nil }
func (*rehearsal) freeBuffer(any)                                          {}
func (*rehearsal) newPipeline(string, string, string, []Slot) (any, error) { return nothing, nil }
func (*rehearsal) newModule(string, Module) (any, error)                   { return nothing, nil }
func (*rehearsal) freePipeline(any)                                        {}
func (*rehearsal) newGroup(string, any, []driverRange) (any, error)        { return nothing, nil }
func (*rehearsal) freeGroup(any)                                           {}
func (*rehearsal) copyBuffer(any, uint64, any, uint64, uint64) error       { return nil }
func (*rehearsal) clear(any, uint64, uint64) error                         { return nil }
func (*rehearsal) upload(any, uint64, []byte, bool) error                  { return nil }
func (*rehearsal) download([]driverRead) error                             { return nil }
func (*rehearsal) submit() error                                           { return nil }
func (*rehearsal) wait() error                                             { return nil }
func (*rehearsal) pending() uint64                                         { return 0 }
func (*rehearsal) done() uint64                                            { return 0 }
func (*rehearsal) close()                                                  {}
func (*rehearsal) startTiming(int) error                                   { return ErrNoTimestamps }
func (*rehearsal) stopTiming() ([]float64, error)                          { return nil, ErrNoTimestamps }
func (*rehearsal) dispatch(any, any, uint32, uint32, uint32) error         { return nil }

// nothing is a handle that is not nil, which would mean a released buffer.
var nothing any = struct{}{}

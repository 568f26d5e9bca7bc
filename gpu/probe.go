package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// What a device says about f16 and subgroups is not believed: some offer what
// does not work, others do not offer what does. Small kernels that run once
// per adapter and driver decide.

const (
	probeVersion = 1  // raise it when the probes change
	probeThreads = 64 // one workgroup
	// A probe that began this long ago and left no result took the process
	// down with it.
	probePatience = time.Minute
)

// probeResult is what the cache keeps.
type probeResult struct {
	Version  int
	Running  string // the probe that is being run, "" when all are done
	Started  time.Time
	Features Features
}

// probe finds out what kernels may use on an adapter, from the cache if it can.
// The notice, if any, is for the user. The error says why the adapter cannot be
// opened, or that its memory is full: then nothing was found out, and nothing is
// kept.
func probe(a adapter) (_ Features, notice string, err error) {
	var r probeResult
	known := a.load("probe", &r) && r.Version == probeVersion
	if known && r.Running == "" {
		return r.Features, "", nil
	}
	crashed := ""
	if known && time.Since(r.Started) > probePatience {
		crashed = r.Running
	}
	r = probeResult{Version: probeVersion, Started: time.Now()}
	r.Features.F16, err = runProbe(a, &r, "f16", crashed, probeF16)
	if err == nil {
		r.Features.Subgroups, err = runProbe(a, &r, "subgroups", crashed, func(d *Device) error {
			size, err := probeSubgroups(d)
			r.Features.SubgroupSize = size
			return err
		})
	}
	if err != nil {
		_ = a.save("probe", probeResult{})
		return Features{}, "", err
	}
	if !r.Features.Subgroups {
		r.Features.SubgroupSize = 0
	}
	r.Running = ""
	if err := a.save("probe", r); err != nil {
		notice = fmt.Sprintf("NOTE: nothing can be kept for the next start, which will measure and compile again: %v; TEZGAH_CACHE names another folder, and with off nothing is kept", err)
	}
	if crashed != "" {
		notice = joinLines(notice, fmt.Sprintf("NOTE: probing %s for %s ended an earlier run; doing without", a.Name, crashed))
	}
	return r.Features, notice, nil
}

// runProbe runs one probe on a device of its own, because a probe may lose it.
// A probe that took the process down in an earlier run is not run again.
func runProbe(a adapter, r *probeResult, name, crashed string, run func(*Device) error) (bool, error) {
	if name == crashed {
		return false, nil
	}
	r.Running = name
	_ = a.save("probe", r)
	d, err := openAdapter(a, a.Limits)
	if err != nil {
		return false, err
	}
	defer d.Close()
	err = run(d)
	if errors.Is(err, ErrOutOfMemory) {
		return false, err
	}
	return err == nil, nil
}

// f16Probe stores products of halves as halves and as floats.
const f16Probe = `enable f16;
@group(0) @binding(0) var<storage, read> x: array<f16>;
@group(0) @binding(1) var<storage, read_write> y: array<f16>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  let i = gid.x;
  y[i] = x[i] * f16(0.5) + f16(1.0);
  z[i] = f32(x[i]) * 3.0;
}
`

// probeF16 checks the probe's results. Multiples of 1/8 below 8 are exact in
// half precision, and so is all that is computed from them.
func probeF16(d *Device) error {
	in := make([]byte, 2*probeThreads)
	for i := range probeThreads {
		binary.LittleEndian.PutUint16(in[2*i:], smallHalf(i))
	}
	x, err := d.NewBuffer("f16 probe x", uint64(len(in)))
	if err != nil {
		return err
	}
	y, err := d.NewBuffer("f16 probe y", uint64(len(in)))
	if err != nil {
		return err
	}
	z, err := d.NewBuffer("f16 probe z", 4*probeThreads)
	if err != nil {
		return err
	}
	p, err := d.NewPipeline("f16 probe", f16Probe)
	if err != nil {
		return err
	}
	if err := d.Upload(x, 0, in); err != nil {
		return err
	}
	if err := d.Dispatch(p, 1, 1, 1, Buf(x), Buf(y), Buf(z)); err != nil {
		return err
	}
	gotY, gotZ := make([]byte, len(in)), make([]byte, 4*probeThreads)
	if err := d.DownloadAll(Read{y, 0, gotY}, Read{z, 0, gotZ}); err != nil {
		return err
	}
	for i := range probeThreads {
		v := float32(i) / 8
		// y = v/2 + 1 in sixteenths: 16 + i; read it back through its bits.
		if got, want := halfValue(binary.LittleEndian.Uint16(gotY[2*i:])), v/2+1; got != want {
			return fmt.Errorf("f16 probe: y[%d] is %g, want %g", i, got, want)
		}
		if got := math.Float32frombits(binary.LittleEndian.Uint32(gotZ[4*i:])); got != 3*v {
			return fmt.Errorf("f16 probe: z[%d] is %g, want %g", i, got, 3*v)
		}
	}
	return nil
}

// smallHalf is i/8 as IEEE half precision, for 0 ≤ i < 64.
func smallHalf(i int) uint16 {
	if i == 0 {
		return 0
	}
	exponent := 0
	for i>>(exponent+1) != 0 {
		exponent++
	}
	return uint16((exponent-3+15)<<10 | (i<<10>>exponent)&0x3ff)
}

// halfValue is the value of a normal half or zero.
func halfValue(h uint16) float32 {
	if h == 0 {
		return 0
	}
	v := math.Ldexp(1+float64(h&0x3ff)/1024, int(h>>10&31)-15)
	if h>>15 != 0 {
		v = -v
	}
	return float32(v)
}

// subgroupProbe reports of each thread its subgroup's size, first member, sum
// of thread numbers, and largest thread number as a float.
const subgroupProbe = `enable subgroups;
@group(0) @binding(0) var<storage, read_write> y: array<vec4<u32>>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_size) size: u32) {
  let first = subgroupBroadcastFirst(i);
  let sum = subgroupAdd(i);
  let top = subgroupMax(f32(i));
  y[i] = vec4<u32>(size, first, sum, u32(top));
}
`

// probeSubgroups returns the subgroup size. It wants subgroups of 4 to 128
// threads that follow each other, all full, with right sums and maxima.
func probeSubgroups(d *Device) (int, error) {
	y, err := d.NewBuffer("subgroup probe", 16*probeThreads)
	if err != nil {
		return 0, err
	}
	p, err := d.NewPipeline("subgroup probe", subgroupProbe)
	if err != nil {
		return 0, err
	}
	if err := d.Dispatch(p, 1, 1, 1, Buf(y)); err != nil {
		return 0, err
	}
	got := make([]uint32, 4*probeThreads)
	if err := d.Download(y, 0, Bytes(got)); err != nil {
		return 0, err
	}
	return checkSubgroups(got)
}

// checkSubgroups judges the answers of the subgroup probe.
func checkSubgroups(got []uint32) (int, error) {
	size := int(got[0])
	if size < 4 || size > 128 || size&(size-1) != 0 {
		return 0, fmt.Errorf("subgroup probe: a size of %d", size)
	}
	members := min(size, probeThreads) // one subgroup may hold more than there are
	for i := range probeThreads {
		first := i / members * members
		last := first + members - 1
		want := [4]uint32{uint32(size), uint32(first), uint32((first + last) * members / 2), uint32(last)}
		if [4]uint32(got[4*i:]) != want {
			return 0, fmt.Errorf("subgroup probe: thread %d answers %v, want %v", i, got[4*i:4*i+4], want)
		}
	}
	return size, nil
}

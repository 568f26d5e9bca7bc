package gpu_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
)

func TestOpenSaysWhatItFound(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	info, f := d.Info(), d.Features()
	t.Logf("%s\nlimits %+v\nfeatures %+v", info, d.Limits(), f)
	if info.Name == "" || info.Backend == "" {
		t.Errorf("adapter without a name or backend: %+v", info)
	}
	if f.Subgroups != (f.SubgroupSize >= 4) {
		t.Errorf("subgroups %v with size %d", f.Subgroups, f.SubgroupSize)
	}
	if (info.Kind == gpu.Software) != strings.Contains(d.Notice(), "SOFTWARE") {
		t.Errorf("kind %s with notice %q", info.Kind, d.Notice())
	}
}

func TestBufferRoundTripsAtOddSizes(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	for _, n := range []int{1, 2, 3, 4, 5, 7, 255, 1021, 65537, 4<<20 + 3, 9<<20 + 1} {
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(rand.Uint32())
		}
		b, err := d.NewBuffer("odd", uint64(n))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Upload(b, 0, want); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		if err := d.Download(b, 0, got); err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%d bytes came back changed", n)
		}
		if n > 7 { // a range that neither begins nor ends at a multiple of 4
			part := make([]byte, n-6)
			if err := d.Download(b, 5, part); err != nil {
				t.Fatal(err)
			}
			if string(part) != string(want[5:n-1]) {
				t.Errorf("bytes 5 to %d of %d came back changed", n-1, n)
			}
		}
		b.Release()
	}
	if m := d.Memory(); m.Live != 0 || m.Buffers != 0 {
		t.Errorf("after releasing everything: %+v", m)
	}
}

func TestNewBufferIsZeroEvenAfterAnother(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	junk := make([]byte, 100_000)
	for i := range junk {
		junk[i] = 0xff
	}
	for range 3 {
		b, err := d.NewBuffer("again", uint64(len(junk)))
		if err != nil {
			t.Fatal(err)
		}
		got := append([]byte(nil), junk...)
		if err := d.Download(b, 0, got); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v != 0 {
				t.Fatalf("byte %d of a new buffer is %#x", i, v)
			}
		}
		if err := d.Upload(b, 0, junk); err != nil {
			t.Fatal(err)
		}
		if err := d.Wait(); err != nil {
			t.Fatal(err)
		}
		b.Release()
		if err := d.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCopyAndClear(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	a, _ := d.NewBuffer("a", 64)
	b, err := d.NewBuffer("b", 30)
	if err != nil {
		t.Fatal(err)
	}
	src := []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-")
	if err := errors.Join(d.Upload(a, 0, src), d.Copy(b, 4, a, 8, 20), d.Clear(a, 32, 16), d.Clear(b, 24, 6)); err != nil {
		t.Fatal(err)
	}
	gotA, gotB := make([]byte, 64), make([]byte, 30)
	if err := d.DownloadAll(gpu.Read{Buffer: a, Dst: gotA}, gpu.Read{Buffer: b, Dst: gotB}); err != nil {
		t.Fatal(err)
	}
	wantA := string(src[:32]) + strings.Repeat("\x00", 16) + string(src[48:])
	wantB := "\x00\x00\x00\x00" + string(src[8:28]) + "\x00\x00\x00\x00\x00\x00"
	if string(gotA) != wantA || string(gotB) != wantB {
		t.Errorf("got %q and %q,\nwant %q and %q", gotA, gotB, wantA, wantB)
	}
}

func TestInvalidBufferCalls(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	b, err := d.NewBuffer("b", 10)
	if err != nil {
		t.Fatal(err)
	}
	gone, _ := d.NewBuffer("gone", 16)
	gone.Release()
	gone.Release()
	eight := make([]byte, 8)
	for name, err := range map[string]error{
		"empty buffer":      second(d.NewBuffer("x", 0)),
		"too large":         second(d.NewBuffer("x", d.Limits().BufferSize+1)),
		"enormous":          second(d.NewBuffer("x", 1<<64-1)),
		"past the end":      d.Upload(b, 4, eight),
		"offset overflow":   d.Upload(b, 1<<64-4, eight),
		"odd offset":        d.Upload(b, 2, eight),
		"odd length inside": d.Upload(b, 0, eight[:3]),
		"nil":               d.Upload(nil, 0, eight),
		"released":          d.Download(gone, 0, eight),
		"copy within one":   d.Copy(b, 4, b, 0, 4),
		"odd clear":         d.Clear(b, 1, 4),
		"copy past the end": d.Copy(b, 8, b, 0, 4),
		"download past":     d.Download(b, 3, eight),
	} {
		if !errors.Is(err, gpu.ErrValidation) {
			t.Errorf("%s: got %v, want an ErrValidation", name, err)
		}
	}
	if err := d.Upload(b, 0, eight); err != nil {
		t.Errorf("the device does not work after invalid calls: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestUnknownDevice(t *testing.T) {
	gputest.Name(t)
	for _, name := range []string{"gpu:77", "gpu:-1", "gpu:x", "no such adapter"} {
		_, err := gpu.Open(gpu.Options{Device: name})
		if !errors.Is(err, gpu.ErrNoAdapter) || !strings.Contains(err.Error(), "gpu:0") {
			t.Errorf("%s: got %v, want an ErrNoAdapter that lists what there is", name, err)
		}
	}
}

func TestSoftwareIsNeverChosenSilently(t *testing.T) {
	gputest.Name(t)
	all, err := gpu.Adapters()
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range all {
		if i > 0 && a.Kind < all[i-1].Kind {
			t.Errorf("adapter %d is %s, after %s", i, a.Kind, all[i-1].Kind)
		}
	}
	for _, name := range []string{"", "gpu", "auto"} {
		d, err := gpu.Open(gpu.Options{Device: name})
		switch {
		case all[0].Kind == gpu.Software:
			if !errors.Is(err, gpu.ErrNoAdapter) || !strings.Contains(err.Error(), all[0].Name) {
				t.Errorf("%q: got %v, want an ErrNoAdapter that names %s", name, err, all[0].Name)
			}
		case err != nil:
			t.Errorf("%q: %v", name, err)
		case d.Info().Kind == gpu.Software:
			t.Errorf("%q opened %s", name, d.Info())
		}
		if err == nil {
			d.Close()
		}
	}
}

func TestClosedDevice(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	b, err := d.NewBuffer("b", 4)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if err := d.Upload(b, 0, make([]byte, 4)); err == nil {
		t.Error("an upload to a closed device worked")
	}
	if err := d.Wait(); err == nil {
		t.Error("waiting for a closed device worked")
	}
}

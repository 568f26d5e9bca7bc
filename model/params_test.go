package model

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
)

func refParams(t testing.TB, lim op.Limits, c Config, opt ParamOptions) *Params {
	t.Helper()
	return must[*Params](t)(NewParams(op.NewRunner(limited{ref.New[float32](), lim}), c, opt))
}

// TestParamOrder states the order of the mega-buffers in full.
func TestParamOrder(t *testing.T) {
	var got []string
	decayed := true
	for _, p := range (Config{VocabSize: 7, Context: 4, DModel: 8, Layers: 2, Heads: 2, KVHeads: 1, FFN: 12}).Params() {
		got = append(got, fmt.Sprint(p.Name, p.Shape))
		if p.Decay && !decayed {
			t.Errorf("%s is decayed but comes after one that is not", p.Name)
		}
		decayed = p.Decay
	}
	want := "tok_emb[7 8] " +
		"layers.0.wq[8 8] layers.0.wk[8 4] layers.0.wv[8 4] layers.0.wo[8 8] layers.0.w_gate[8 12] layers.0.w_up[8 12] layers.0.w_down[12 8] " +
		"layers.1.wq[8 8] layers.1.wk[8 4] layers.1.wv[8 4] layers.1.wo[8 8] layers.1.w_gate[8 12] layers.1.w_up[8 12] layers.1.w_down[12 8] " +
		"lm_head[8 7] layers.0.attn_norm[8] layers.0.ffn_norm[8] layers.1.attn_norm[8] layers.1.ffn_norm[8] final_norm[8]"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

// TestArenas cuts a model into arenas and checks that tensors are aligned,
// whole, disjoint and within the limit, that blocks cover them, and that a
// step's results do not show the cuts.
func TestArenas(t *testing.T) {
	all := ParamOptions{Grads: true, Moments8: true, Mirror: true}
	one := refParams(t, op.Limits{F16: true}, odd, all)
	lim := op.Limits{F16: true, MaxBufferBytes: 60 << 10, MaxBindingBytes: 50 << 10}
	many := refParams(t, lim, odd, all)
	if len(one.arenas) != 1 || len(many.arenas) < 3 {
		t.Fatalf("%d and %d arenas, want 1 and several", len(one.arenas), len(many.arenas))
	}
	end := map[int]int{}
	for _, p := range many.Infos() {
		a := many.arenas[p.Arena]
		if p.Off%op.AlignElems != 0 || p.Off != end[p.Arena] || p.Off+p.Len() > a.w.Len() {
			t.Errorf("%s lies at %d of %d in arena %d, the one before ends at %d", p.Name, p.Off, a.w.Len(), p.Arena, end[p.Arena])
		}
		if p.Decay != (p.Off < a.decayed) {
			t.Errorf("%s lies in the wrong block of arena %d", p.Name, p.Arena)
		}
		end[p.Arena] = alignUp(p.Off+p.Len(), op.AlignElems)
	}
	total := 0
	for _, b := range many.Blocks() {
		total += b.W.Len()
		for _, x := range []op.Tensor{b.W, b.G, b.M, b.V, b.W16, b.MScale, b.VScale} {
			if bytes := int64(x.Buf.Len() * x.Type().Size()); bytes > lim.MaxBindingBytes {
				t.Errorf("%v has %d bytes, the limit is %d", x, bytes, lim.MaxBindingBytes)
			}
		}
	}
	if total < odd.NumParams() || total > odd.NumParams()+len(many.Infos())*op.AlignElems {
		t.Errorf("blocks hold %d elements, the model has %d", total, odd.NumParams())
	}
	for _, p := range []*Params{one, many} {
		if err := p.Init(11); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range one.Weights() {
		sameBits(t, s.Name, read32(t, one.r, s.T), read32(t, many.r, many.Weights()[i].T))
	}
	// The loss needs a chunk of 256 rows of logits: give the graphs no limit.
	many.r = op.NewRunner(many.r.Backend().(limited).Backend)
	l1, g1 := step(t, one, TrainOptions{Batch: 1, Context: 20})
	l2, g2 := step(t, many, TrainOptions{Batch: 1, Context: 20})
	sameStep(t, "arenas", l1, l2, g1, g2)
}

func TestTooLargeTensor(t *testing.T) {
	r := op.NewRunner(limited{ref.New[float32](), op.Limits{MaxBindingBytes: 40 << 10}})
	_, err := NewParams(r, odd, ParamOptions{})
	if err == nil || !strings.Contains(err.Error(), "tok_emb [307 40]") || !strings.Contains(err.Error(), "40.0 KiB") {
		t.Errorf("got error %v, want one that names tok_emb and the limit", err)
	}
	if now, _ := r.Backend().MemoryBytes(); now != 0 {
		t.Errorf("%d bytes are still allocated after the error", now)
	}
}

// TestInit checks the distribution of every tensor, independence of seeds and
// that the mirror follows.
func TestInit(t *testing.T) {
	for _, o := range []ParamOptions{{Mirror: true}, {Rounded: tensor.F16}, {Rounded: tensor.BF16}} {
		checkInit(t, refParams(t, op.Limits{F16: true}, odd, o))
	}
}

func checkInit(t *testing.T, p *Params) {
	t.Helper()
	bits := tensor.ToF16
	if p.opt.Rounded == tensor.BF16 {
		bits = tensor.ToBF16
	}
	if err := p.Init(5); err != nil {
		t.Fatal(err)
	}
	p.fresh()
	seen := map[float32]string{}
	for i, s := range p.Weights() {
		w := read32(t, p.r, s.T)
		if !p.Infos()[i].Decay {
			for _, v := range w {
				if v != 1 {
					t.Fatalf("%s holds %v, want 1", s.Name, v)
				}
			}
			continue
		}
		if other, ok := seen[w[0]]; ok {
			t.Errorf("%s and %s begin with the same number", s.Name, other)
		}
		seen[w[0]] = s.Name
		std := 0.02
		if strings.HasSuffix(s.Name, "wo") || strings.HasSuffix(s.Name, "w_down") {
			std = 0.02 / math.Sqrt(2*2)
		}
		sum, sq := 0.0, 0.0
		for _, v := range w {
			sum += float64(v)
			sq += float64(v) * float64(v)
		}
		n := float64(len(w)) // standard errors: std/√n of the mean, std/√2n of the deviation
		if mean := sum / n; math.Abs(mean) > 5*std/math.Sqrt(n) {
			t.Errorf("%s: mean %v", s.Name, mean)
		}
		if got := math.Sqrt(sq / n); math.Abs(got-std) > 5*std/math.Sqrt(2*n) {
			t.Errorf("%s: standard deviation %v, want %v", s.Name, got, std)
		}
		h := read16(t, p, p.factor(s.Name))
		for j := range w {
			if h[j] != bits(w[j]) {
				t.Fatalf("mirror of %s[%d] is %#x, weight %v", s.Name, j, h[j], w[j])
			}
		}
	}
	before := read32(t, p.r, p.master("tok_emb"))
	if err := p.Init(6); err != nil {
		t.Fatal(err)
	}
	if after := read32(t, p.r, p.master("tok_emb")); after[0] == before[0] && after[1] == before[1] {
		t.Error("another seed gives the same weights")
	}
}

func read16(t testing.TB, p *Params, x op.Tensor) []uint16 {
	t.Helper()
	v := make([]uint16, x.Len())
	if err := op.ReadSlice(p.r, v, x); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestInitChunks: chunks of the transfer and of the threads do not show.
func TestInitChunks(t *testing.T) {
	const n = 100003
	rng := tensor.NewRNG(3, 4)
	whole, parts := make([]float32, n), make([]float32, n)
	rng.Normal(whole, 0, 1)
	parallelNormal(rng, parts[:33001], 0, 1)
	parallelNormal(rng, parts[33001:], 33001, 1)
	sameBits(t, "normal", parts, whole)
}

// TestStateRoundTrip moves weights and moments of both kinds through streams
// into another model, cut into other arenas, and compares everything.
func TestStateRoundTrip(t *testing.T) {
	cfg := tinyTied
	cfg.DModel = 15 // int8 gains of a length that is no multiple of four
	for _, opt := range []ParamOptions{{Grads: true, Moments: true, Mirror: true}, {Grads: true, Moments8: true}} {
		a := refParams(t, op.Limits{F16: true}, cfg, opt)
		b := refParams(t, op.Limits{F16: true, MaxBindingBytes: 10 << 10}, cfg, opt)
		from, to := append(a.Weights(), a.Moments()...), append(b.Weights(), b.Moments()...)
		if len(from) != len(to) || len(from) < 3*len(a.Infos()) {
			t.Fatalf("%d and %d tensors of state, want three or more for each of %d parameters", len(from), len(to), len(a.Infos()))
		}
		var files [][]byte
		for i, s := range from {
			n := s.T.Len() * s.DType.Size()
			data := make([]byte, n)
			for j, x := range lcg(uint32(i), n) {
				data[j] = byte(x>>24) & 0x3f // finite as float32 of every byte order
			}
			if err := a.WriteFrom(bytes.NewReader(data), s); err != nil {
				t.Fatal(err)
			}
			files = append(files, data)
		}
		for i, s := range from {
			var out bytes.Buffer
			if err := a.ReadTo(&out, s); err != nil {
				t.Fatal(err)
			}
			if s.Name != to[i].Name || s.DType != to[i].DType || fmt.Sprint(s.Shape) != fmt.Sprint(to[i].Shape) {
				t.Fatalf("%s %v %v became %s %v %v", s.Name, s.DType, s.Shape, to[i].Name, to[i].DType, to[i].Shape)
			}
			if err := b.WriteFrom(&out, to[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range to {
			var out bytes.Buffer
			if err := b.ReadTo(&out, s); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), files[i]) {
				t.Errorf("%s came back different", s.Name)
			}
		}
	}
}

// TestWriteFromShort: a stream that ends early is an error with the name, and
// one that fails keeps its own error.
func TestWriteFromShort(t *testing.T) {
	p := refParams(t, op.Limits{}, tinyTied, ParamOptions{})
	s := p.Weights()[1]
	err := p.WriteFrom(bytes.NewReader(make([]byte, 5)), s)
	if err == nil || !strings.Contains(err.Error(), "layers.0.wq") {
		t.Errorf("got error %v, want one that names layers.0.wq", err)
	}
	if err := p.ReadTo(brokenWriter{}, s); err == nil || !strings.Contains(err.Error(), io.ErrClosedPipe.Error()) {
		t.Errorf("got error %v, want the writer's", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestMirrorFollowsWeights: after loading weights the next forward pass reads
// them, not the old mirror.
func TestMirrorFollowsWeights(t *testing.T) {
	p := cpuParams(t, 1, tinyTied, ParamOptions{Mirror: true})
	tokens, _ := batchOf(tinyTied, 1, 9, 1)
	before := forwardLogits(t, p, 1, tokens)
	s := p.Weights()[0]
	w := read32(t, p.r, s.T)
	for i := range w {
		w[i] = -2 * w[i]
	}
	if err := p.WriteFrom(bytes.NewReader(tensor.Bytes(w)), s); err != nil {
		t.Fatal(err)
	}
	after := forwardLogits(t, p, 1, tokens)
	again := cpuParams(t, 1, tinyTied, ParamOptions{Mirror: true})
	op.WriteSlice(again.r, again.master("tok_emb"), w)
	sameBits(t, "logits", after, forwardLogits(t, again, 1, tokens))
	if before[0] == after[0] {
		t.Error("the logits did not change")
	}
}

func TestParamOptionErrors(t *testing.T) {
	r := op.NewRunner(limited{ref.New[float32](), op.Limits{}})
	for want, o := range map[string]ParamOptions{
		"without gradients": {Moments: true},
		"want one":          {Grads: true, Moments: true, Moments8: true},
		"no float16":        {Mirror: true},
		"has no float16":    {Rounded: tensor.F16},
		"both asked for":    {Mirror: true, Rounded: tensor.BF16},
		"want BF16 or F16":  {Rounded: tensor.I8},
	} {
		if _, err := NewParams(r, tinyTied, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want one with %q", o, err, want)
		}
	}
}

package main

import (
	"fmt"
	"strconv"
	"strings"

	"tezgah/op/cpu/internal/kern"
)

// shape is one matrix product.
type shape struct {
	Form string `json:"form"`
	M    int    `json:"m"`
	N    int    `json:"n"`
	K    int    `json:"k"`
}

func (s shape) String() string { return fmt.Sprintf("%s %d %d %d", s.Form, s.M, s.N, s.K) }

func (s shape) flops() float64 { return 2 * float64(s.M) * float64(s.N) * float64(s.K) }

func (s shape) form() kern.Form {
	return map[string]kern.Form{"NN": kern.NN, "NT": kern.NT, "TN": kern.TN}[s.Form]
}

// presetDims are C, KVH·D, F and V; H·D equals C in both.
var presetDims = map[string][4]int{
	"mini":  {512, 128, 2048, 16384},
	"small": {768, 256, 3072, 16384},
}

// shapesOf lists the products of one training step: for each weight (in, out) the forward product,
// the gradient of its input and the gradient of the weight, and the same for the tied output
// embedding (V, C). Equal products are listed once.
func shapesOf(presets, rows, only string) ([]shape, error) {
	var list []shape
	seen := map[shape]bool{}
	add := func(form string, m, n, k int) {
		s := shape{form, m, n, k}
		if !seen[s] && strings.Contains(s.String(), only) {
			list = append(list, s)
		}
		seen[s] = true
	}
	for _, rowText := range strings.Split(rows, ",") {
		r, err := strconv.Atoi(rowText)
		if err != nil || r < 1 {
			return nil, fmt.Errorf("-rows: %q is not a positive number", rowText)
		}
		for _, p := range strings.Split(presets, ",") {
			d, ok := presetDims[p]
			if !ok {
				return nil, fmt.Errorf("-presets: %q is unknown, want mini or small", p)
			}
			c, kv, f, v := d[0], d[1], d[2], d[3]
			for _, w := range [][2]int{{c, c}, {c, kv}, {c, f}, {f, c}} {
				in, out := w[0], w[1]
				add("NN", r, out, in)
				add("NT", r, in, out)
				add("TN", in, out, r)
			}
			add("NT", r, v, c)
			add("NN", r, c, v)
			add("TN", v, c, r)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("-only: no shape contains %q", only)
	}
	return list, nil
}

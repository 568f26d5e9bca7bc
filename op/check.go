package op

import (
	"fmt"
	"strings"

	"tezgah/tensor"
)

// checker collects the first disagreement of one operation's arguments. Its
// methods do not keep the variadic slice, so a check that passes allocates
// nothing.
type checker struct {
	op  string
	err error
}

// want says that argument arg must be present, of type typ, inside its buffer
// and of the given dimensions, whose names stand in names ("N,C").
func (c *checker) want(arg string, t Tensor, typ tensor.DType, names string, dims ...int) {
	if c.err != nil || !c.present(arg, t) {
		return
	}
	if t.Type() != typ {
		c.fail("%s %v is %v, want %v", arg, t, t.Type(), typ)
		return
	}
	c.shape(arg, t, names, dims...)
}

// wantWeight is want for weights that kernels read as F32 or F16.
func (c *checker) wantWeight(arg string, t Tensor, names string, dims ...int) {
	if c.err != nil || !c.present(arg, t) {
		return
	}
	if t.Type() != tensor.F32 && t.Type() != tensor.F16 {
		c.fail("%s %v is %v, want F32 or F16", arg, t, t.Type())
		return
	}
	c.shape(arg, t, names, dims...)
}

// wantOperand is want for an operand tensor: F32, or one of the types that
// products may round to. Whether they do so now is the Runner's to check.
func (c *checker) wantOperand(arg string, t Tensor, names string, dims ...int) {
	if c.err != nil || !c.present(arg, t) {
		return
	}
	if typ := t.Type(); typ != tensor.F32 && typ != tensor.BF16 && typ != tensor.F16 {
		c.fail("%s %v is %v, want F32, or the type that products round to (BF16 or F16)", arg, t, typ)
		return
	}
	c.shape(arg, t, names, dims...)
}

// oneType says that two arguments, which are there, are of the same type.
func (c *checker) oneType(arg string, t Tensor, other string, o Tensor) {
	if c.err == nil && t.Type() != o.Type() {
		c.fail("%s %v is %v and %s %v is %v, want one type", arg, t, t.Type(), other, o, o.Type())
	}
}

// optional is want for an argument that may be absent.
func (c *checker) optional(arg string, t Tensor, typ tensor.DType, names string, dims ...int) {
	if t.Ok() {
		c.want(arg, t, typ, names, dims...)
	}
}

func (c *checker) shape(arg string, t Tensor, names string, dims ...int) {
	same := t.Rank == len(dims)
	for i := 0; same && i < len(dims); i++ {
		same = t.Dims[i] == dims[i]
	}
	if !same {
		c.fail("%s is %v, want %s", arg, t, describe(names, append([]int(nil), dims...)))
		return
	}
	if t.Off < 0 || t.Off+t.Len() > t.Buf.Len() {
		c.fail("%s %v from element %d does not fit its buffer of %d", arg, t, t.Off, t.Buf.Len())
	}
}

// rank says that an argument, from which other dimensions are taken, is there
// and has r dimensions of at least one element each.
func (c *checker) rank(arg string, t Tensor, r int) bool {
	if c.err != nil || !c.present(arg, t) {
		return false
	}
	if t.Rank != r {
		c.fail("%s %v has %d dimensions, want %d", arg, t, t.Rank, r)
		return false
	}
	for _, d := range t.Dims[:r] {
		if d < 1 {
			c.fail("%s %v has a dimension below 1", arg, t)
			return false
		}
	}
	return true
}

func (c *checker) present(arg string, t Tensor) bool {
	if t.Buf == nil {
		c.fail("%s is absent", arg)
		return false
	}
	return true
}

// that states a condition that is no shape.
func (c *checker) that(ok bool, format string, a int, b int) {
	if c.err == nil && !ok {
		c.fail(format, a, b)
	}
}

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(c.op+": "+format, args...)
	}
}

// describe renders "(N 4, C 64)".
func describe(names string, dims []int) string {
	parts := strings.Split(names, ",")
	for i := range parts {
		parts[i] = fmt.Sprintf("%s %d", parts[i], dims[i])
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

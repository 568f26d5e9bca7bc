package gpu

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// The kinds of error this package returns; use errors.Is.
var (
	// ErrNoAdapter: no GPU was found, or none with the name asked for.
	ErrNoAdapter = errors.New("no usable GPU")
	// ErrLost: the device is gone (driver reset, unplugged, timed out). It
	// stays gone: close it, open a new one and load the last good state.
	ErrLost = errors.New("GPU device lost")
	// ErrOutOfMemory: an allocation failed. The device is still usable.
	ErrOutOfMemory = errors.New("out of GPU memory")
	// ErrValidation: a call broke a rule of WebGPU or a limit of the device.
	ErrValidation = errors.New("invalid GPU call")
	// ErrShader: a kernel did not compile; errors.As gives the *ShaderError.
	ErrShader = errors.New("shader does not compile")
)

// ErrUnusable comes with ErrNoAdapter where a GPU is there that cannot be used, or
// where the environment names a driver: a user should hear of it.
var ErrUnusable = errors.New("what is there cannot be used")

// errUnusable is both.
var errUnusable = fmt.Errorf("%w: %w", ErrNoAdapter, ErrUnusable)

// ShaderError is a kernel that a driver refused.
type ShaderError struct {
	Kernel  string // label given to NewPipeline
	Driver  string // adapter, backend and driver
	Message string // what the compiler said
	Line    int    // line of the assembled source, 0 if unknown
	Excerpt string // the source around Line, with line numbers
	Hint    string // what to do next
}

// Error gives everything in a few lines.
func (e *ShaderError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kernel %s does not compile on %s: %s", e.Kernel, e.Driver, e.Message)
	if e.Excerpt != "" {
		b.WriteString("\n" + e.Excerpt)
	}
	if e.Hint != "" {
		b.WriteString("\n" + e.Hint)
	}
	return b.String()
}

// Unwrap makes errors.Is(err, ErrShader) true.
func (e *ShaderError) Unwrap() error { return ErrShader }

// newShaderError builds the error from a compiler message, taking the first
// line number found in it. source is the text the numbers refer to.
func newShaderError(kernel, driver, source, message string) *ShaderError {
	e := &ShaderError{Kernel: kernel, Driver: driver, Message: strings.TrimSpace(message)}
	e.Line = lineOfName(source, message, lineInMessage(message))
	e.Excerpt = excerpt(source, e.Line)
	e.Hint = shaderHint(source)
	return e
}

// shaderHint names the way around a kernel that fails: the variant without
// the optional feature it uses, else the CPU.
func shaderHint(source string) string {
	switch {
	case strings.Contains(source, "enable f16"):
		return "fallback: run without f16 (DisableF16), or with --device cpu"
	case strings.Contains(source, "subgroup"):
		return "fallback: run without subgroups (DisableSubgroups), or with --device cpu"
	}
	return "fallback: run with --device cpu, and report this kernel and driver"
}

// lineInMessage finds the first "LINE:COLUMN" or "line LINE" in a compiler
// message; 0 if there is none.
func lineInMessage(message string) int {
	if i := strings.Index(message, "line "); i >= 0 {
		if n, _ := leadingInt(message[i+len("line "):]); n > 0 {
			return n
		}
	}
	for i := 0; i < len(message); i++ {
		if message[i] < '0' || message[i] > '9' {
			continue
		}
		n, length := leadingInt(message[i:])
		rest := message[i+length:]
		if n > 0 && len(rest) > 1 && rest[0] == ':' && rest[1] >= '0' && rest[1] <= '9' {
			return n
		}
		i += length - 1
	}
	return 0
}

// lineOfName moves from the line of a function, which is all that the native
// compiler tells of an unknown name, to the first line that has the name.
func lineOfName(source, message string, line int) int {
	_, name, found := strings.Cut(message, "unresolved identifier: ")
	if !found || line == 0 {
		return line
	}
	name, _, _ = strings.Cut(strings.TrimSpace(name), "\n")
	for n, text := range strings.Split(source, "\n") {
		if n+1 >= line && strings.Contains(text, name) {
			return n + 1
		}
	}
	return line
}

// leadingInt reads the decimal digits at the start of s.
func leadingInt(s string) (value, length int) {
	for length < len(s) && length < 9 && s[length] >= '0' && s[length] <= '9' {
		value = value*10 + int(s[length]-'0')
		length++
	}
	return value, length
}

// excerpt returns the lines around line (1-based), numbered, the line itself
// marked; "" if line is not in source.
func excerpt(source string, line int) string {
	lines := strings.Split(source, "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	var b strings.Builder
	for n := max(1, line-2); n <= min(len(lines), line+2); n++ {
		mark := " "
		if n == line {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s %4d | %s\n", mark, n, lines[n-1])
	}
	return strings.TrimRight(b.String(), "\n")
}

// invalid builds an ErrValidation.
func invalid(format string, args ...any) error {
	return fmt.Errorf("gpu: "+format+" (%w)", append(args, ErrValidation)...)
}

// isLost and isShaderFault sort the errors of a driver.
func isLost(err error) bool { return errors.Is(err, ErrLost) }

func isShaderFault(err error) bool {
	return !errors.Is(err, ErrLost) && !errors.Is(err, ErrOutOfMemory)
}

// rescue turns a panic inside a platform's binding into an error, so that a
// defect there ends a call and not the program. Use with defer.
func rescue(what string, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("gpu: %s: the GPU binding panicked: %v\n%s", what, r, debug.Stack())
	}
}

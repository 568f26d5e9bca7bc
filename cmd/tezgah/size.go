package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sizeUnits are the units of a size in bytes, decimal and binary.
var sizeUnits = map[string]float64{
	"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}

// byteSize is a flag that takes a number of bytes with a unit, such as 2GB,
// 1.5GiB or 500000.
type byteSize int64

// Set implements pflag.Value.
func (s *byteSize) Set(text string) error {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit, ok := sizeUnits[strings.ToUpper(strings.TrimSpace(text[len(number):]))]
	x, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(x >= 0) || x*unit > math.MaxInt64/2 {
		return fmt.Errorf("%q is no size; want a number with KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 2GB", text)
	}
	*s = byteSize(math.Round(x * unit))
	return nil
}

// String implements pflag.Value; 0 stands for the default of the flag's owner.
func (s *byteSize) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type implements pflag.Value.
func (s *byteSize) Type() string { return "size" }

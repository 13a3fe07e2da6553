package cli

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// byteSize is a flag for a number of bytes. It takes 100663296 and 96MiB alike: settings
// of many megabytes are easily wrong by a digit when they are written out.
type byteSize uint64

var _ pflag.Value = (*byteSize)(nil)

// byteUnits are powers of 1024, smallest first.
var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// Set implements pflag.Value: a whole number, and one of the units or none.
func (b *byteSize) Set(text string) error {
	number := strings.TrimRight(text, "BKMGTi ")
	unit := strings.TrimSpace(text[len(number):])
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no number of bytes, such as 96MiB", text)
	}
	for i, name := range byteUnits {
		if unit != name && unit != "" {
			continue
		}
		over, low := bits.Mul64(n, 1<<(10*i))
		if over != 0 {
			return fmt.Errorf("%q is too much", text)
		}
		*b = byteSize(low)
		return nil
	}
	return fmt.Errorf("%q: units are %s", text, strings.Join(byteUnits, ", "))
}

// String is the shortest text that Set reads as the same number.
func (b *byteSize) String() string {
	n, i := uint64(*b), 0
	for n != 0 && n%1024 == 0 && i < len(byteUnits)-1 {
		n, i = n/1024, i+1
	}
	if i == 0 {
		return strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(n, 10) + byteUnits[i]
}

// Type is the placeholder in the help.
func (b *byteSize) Type() string { return "bytes" }

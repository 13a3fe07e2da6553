package reads

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestFailedReads: the answer to a read that panicked does not blame the store.
func TestFailedReads(t *testing.T) {
	j := &job{shared: &Shared{Config: Config{Tablet: 7}}}
	for text, err := range map[string]error{
		"panicked: index": fmt.Errorf("%w: index out of range", errPanicked),
		"read its store":  errors.New("bad block"),
	} {
		got := j.failed(&pb.TabletRequest{}, err).GetError()
		if got.GetCode() != pb.Error_CODE_INTERNAL || !strings.Contains(got.Message, text) ||
			strings.Contains(got.Message, "store") != strings.Contains(text, "store") {
			t.Errorf("%v: %v", err, got)
		}
	}
}

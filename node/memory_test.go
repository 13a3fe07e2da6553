package node_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/percolator-go/percolator/node"
)

// lockedBuffer is a log that goroutines share.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestMemoryBoundsTheStore: the store's sizes follow from the process's memory limit, and the log
// reports them.
func TestMemoryBoundsTheStore(t *testing.T) {
	out := &lockedBuffer{}
	open(t, t.TempDir(), func(c *node.Config) {
		c.Memory, c.Store.MemTableSize = 512<<20, 0
		c.Logger = slog.New(slog.NewTextHandler(out, nil))
	})
	want := "bound=536870912 from=--memory"
	if text := out.String(); !strings.Contains(text, want) ||
		!strings.Contains(text, "memtable=8388608 table=1048576") {
		t.Errorf("the log does not report %q and the sizes:\n%s", want, text)
	}
}

package observer_test

import (
	"testing"

	"github.com/percolator-go/percolator/internal/leaktest"
)

func TestMain(m *testing.M) {
	// The actor library counts dead letters for a second after the first; that goroutine then ends.
	leaktest.Main(m)
}

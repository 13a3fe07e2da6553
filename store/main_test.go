package store_test

import (
	"testing"

	"github.com/percolator-go/percolator/internal/leaktest"
)

// Close joins everything that Open started.
func TestMain(m *testing.M) { leaktest.Main(m) }

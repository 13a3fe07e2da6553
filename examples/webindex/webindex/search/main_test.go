package search

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/percolator-go/percolator/internal/leaktest"
)

func TestMain(m *testing.M) {
	// Bleve's analysis workers belong to the process.
	leaktest.Main(m, goleak.IgnoreTopFunction(
		"github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

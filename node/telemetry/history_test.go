package telemetry

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestHistoryBlocked: a collection that is off, or whose state only another node knows, is not blocked.
func TestHistoryBlocked(t *testing.T) {
	for why, want := range map[string]float64{
		"": 0, LeaderKnows: 0, CollectionOff: 0, "node 2 holds history": 1,
	} {
		out := make(chan prometheus.Metric, len(historyTable))
		historyTable.send(out, history{HistoryStatus: &pb.HistoryStatus{BlockedBy: why}})
		close(out)
		found := 0
		for m := range out {
			if !strings.Contains(m.Desc().String(), `"percolator_history_blocked"`) {
				continue
			}
			var d dto.Metric
			if err := m.Write(&d); err != nil {
				t.Fatal(err)
			}
			if found++; d.GetGauge().GetValue() != want {
				t.Errorf("blocked by %q: %v, want %v", why, d.GetGauge().GetValue(), want)
			}
		}
		if found != 1 {
			t.Errorf("%d metrics", found)
		}
	}
}

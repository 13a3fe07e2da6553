package simtest

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

var (
	tabletCount = flag.Int("tablets", 12, "number of tablets of TestLarge")
	window      = flag.Duration("window", 10*time.Second, "duration for which TestLarge counts messages, in virtual time")
	figures     = flag.String("figures", "", "file to which TestLarge writes its figures as JSON")
)

// TestLarge runs -nodes nodes at rest, and kills a rack of them.
func TestLarge(t *testing.T) {
	o := LargeOptions{Seed: *firstSeed, Nodes: *nodes, Tablets: *tabletCount, Window: *window}
	if o.Nodes == 0 {
		o.Nodes = 4
	}
	var f LargeFigures
	var err error
	synctest.Test(t, func(*testing.T) { f, err = Large(o) })
	t.Logf("%+v", f)
	if err != nil {
		t.Fatal(err)
	}
	if f.Requests["support"] == 0 || f.Requests["survey"] == 0 || f.Batches == 0 || f.Failover == 0 {
		t.Errorf("nothing was counted: %+v", f)
	}
	if *figures == "" {
		return
	}
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(*figures, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

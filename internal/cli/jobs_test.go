package cli

import (
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

func TestJobsListing(t *testing.T) {
	cluster := &fakeCluster{whole: &pb.ClusterStatusResponse{
		UnixMs: 100_000, RestoresUnavailable: "no quorum",
		Jobs: []*pb.Job{
			{
				Kind: "backup", State: "running", Subject: "full backup x", Done: 3, Total: 16, Unit: "tablets",
				Bytes: 5 << 20, Records: 7, By: "ann@\x1b[1mhome", StartedUnixMs: 40_000, SeenUnixMs: 99_000,
			},
			{Kind: "restore", State: "unfinished", Subject: "table bank", Detail: "run it again"},
			{Kind: "backfill", State: "running", Subject: "observer index", Done: 9, Unit: "rows"},
		},
	}}
	code, stdout, stderr := runApp(t, cluster, nil, "jobs")
	for _, want := range []string{
		"backup    running     full backup x   3 of 16 tablets", "1m0s", `ann@\x1b[1mhome`,
		"backfill  running     observer index           9 rows", "restore, table bank: run it again",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%d, without %q:\n%s%s", code, want, stdout, stderr)
		}
	}
	if !strings.Contains(stderr, "no quorum") {
		t.Errorf("it is not said that restores may be missing: %s", stderr)
	}
}

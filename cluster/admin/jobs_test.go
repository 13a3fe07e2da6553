package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestReportedJobs: a node keeps the newest report of a bounded number of jobs, marks jobs without
// reports as silent, and forgets them later.
func TestReportedJobs(t *testing.T) {
	var j Jobs
	now := time.UnixMilli(1_000_000)
	report := func(id, state string, done uint64) {
		t.Helper()
		if err := j.report(&pb.Job{Kind: jobBackup, Id: id, State: state, Done: done}, now); err != nil {
			t.Fatal(err)
		}
	}
	shown := func() (out string) {
		for _, job := range j.All(now) {
			out += fmt.Sprintf("%s %s %d since %d; ", job.Id, job.State, job.Done, job.StartedUnixMs)
		}
		return out
	}
	report("a", jobRunning, 1)
	now = now.Add(time.Second)
	report("b", jobRunning, 2)
	report("a", jobRunning, 3)
	if got := shown(); got != "b running 2 since 1001000; a running 3 since 1000000; " {
		t.Errorf("two jobs: %q", got)
	}
	now = now.Add(silentJob)
	report("b", jobDone, 4)
	now = now.Add(time.Second)
	if got := shown(); got != "a silent 3 since 1000000; b done 4 since 1001000; " {
		t.Errorf("one is silent, one has ended: %q", got)
	}
	if now = now.Add(keepJob); shown() != "" {
		t.Errorf("an hour later: %q", shown())
	}
	for i := range maxJobs + 1 {
		report(fmt.Sprint(i), jobRunning, 1)
	}
	if all := j.All(now); len(all) != maxJobs || all[0].Id != "1" {
		t.Errorf("%d jobs from %v on", len(all), all[0])
	}
	long := strings.Repeat("x", maxJobText+1)
	for _, bad := range []*pb.Job{
		nil, {Kind: jobDrain, Id: "a", State: jobRunning}, {Kind: jobBackup, State: jobRunning},
		{Kind: jobBackup, Id: "a", State: jobUnfinished}, {Kind: jobBackup, Id: long, State: jobRunning},
		{Kind: jobRestore, Id: "a", State: jobDone, Tables: make([]string, maxJobTables+1)},
		{Kind: jobRestore, Id: "a", State: jobFailed, Detail: long},
	} {
		if err := j.report(bad, now); err == nil {
			t.Errorf("taken: %.200v", bad)
		}
	}
}

// TestJobs: the cluster's jobs, as reported in its statuses.
func TestJobs(t *testing.T) {
	restore := func(seen int64, tables ...string) *pb.Job {
		return &pb.Job{Kind: jobRestore, Id: "r", State: jobRunning, SeenUnixMs: seen, Tables: tables}
	}
	status := &pb.ClusterStatusResponse{
		Nodes: []*pb.NodeReport{
			{Node: &pb.Node{NodeId: 1}, Status: &pb.NodeStatusResponse{Jobs: []*pb.Job{
				{Kind: jobBackup, Id: "b", State: jobDone, StartedUnixMs: 9}, restore(1, "old"),
			}}},
			{Node: &pb.Node{NodeId: 2}, Status: &pb.NodeStatusResponse{
				Jobs: []*pb.Job{
					restore(2, "bank"), {Kind: jobTable, Id: "bank", State: jobRunning},
					{Kind: jobTable, Id: "wide", State: jobSilent}, {Kind: jobTable, Id: "complete", State: jobRunning},
				}, Placement: &pb.PlacementStatus{Changing: 2, Moves: 7},
			}},
			{Node: &pb.Node{NodeId: 3, State: pb.NodeState_NODE_STATE_DRAINING, Blocked: "no room",
				Replicas: 3, DrainReplicas: 8}},
		},
		Observers: []*pb.ObserverState{
			{}, {
				Info:     &pb.ObserverInfo{Table: 16},
				Backfill: &pb.Backfill{Name: "index", Rows: 5, NextRow: []byte("n")},
			}, {Backfill: &pb.Backfill{Done: true}},
		},
	}
	jobs := jobsOf(status, []*pb.Table{
		{Id: 16, Name: "bank", SplitKeys: [][]byte{{'s'}}, PendingSplitKeys: [][]byte{{'m'}, {'n'}}},
		{Id: 18, Name: "wide", PendingSplitKeys: [][]byte{{'m'}}},
		{Id: 17, Name: "shop", Restoring: &pb.RestoreMark{Source: "x-full"}},
	}, []*pb.TabletDescriptor{
		{TabletId: 1, EndTable: 16}, {TabletId: 2, StartTable: 16, EndTable: 16, EndRow: []byte("m")},
		{TabletId: 3, StartTable: 16, StartRow: []byte("m"), EndTable: 16, EndRow: []byte("s")},
		{TabletId: 4, StartTable: 16, StartRow: []byte("s"), EndUnbounded: true},
	})
	got := ""
	for _, j := range jobs {
		got += fmt.Sprintf("%s %s %s %d/%d of node %d; ", j.Kind, j.Id, j.State, j.Done, j.Total, j.NodeId)
	}
	const want = "restore r running 0/0 of node 2; table bank running 2/3 of node 2; " +
		"table wide unfinished 0/1 of node 0; restore table 17 unfinished 0/0 of node 0; " +
		"backfill index running 1/3 of node 0; move 2 running 7/9 of node 2; " +
		"drain 3 blocked 5/8 of node 3; backup b done 0/0 of node 1; "
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if detail := jobs[3].Detail; !strings.Contains(detail, "x-full") || !strings.Contains(detail, "table drop") {
		t.Errorf("an unfinished restore reports: %q", detail)
	}
}

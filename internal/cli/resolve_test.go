package cli

import (
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// lockedCluster has two locks and an intent of one transaction, and a primary that answers status
// checks with the given status; a rollback of the primary makes the next answer "rolled back".
func lockedCluster(status pb.Status, commitTS uint64) *fakeCluster {
	cluster := bankCluster()
	cluster.walked = func(req *pb.WalkRequest) *pb.WalkResponse {
		page := &pb.WalkResponse{Done: true}
		if string(req.FromRow) == "m" { // the second tablet
			return page
		}
		for _, e := range oneOfEachLock(&pb.WalkRequest{Group: req.Group,
			Column: req.Column}).Entries {
			if string(e.Cell.Row) >= string(req.FromRow) {
				page.Entries = append(page.Entries, e)
			}
		}
		return page
	}
	cluster.mutate = func(req *pb.TabletRequest) *pb.MutationResult {
		switch {
		case req.GetCheckTxnStatus() != nil:
			return &pb.MutationResult{Status: status, CommitTs: commitTS}
		case req.GetRollback() != nil:
			status = pb.Status_STATUS_ROLLED_BACK
		}
		return &pb.MutationResult{}
	}
	return cluster
}

// sentResolutions returns the resolved cells and intents with their commit timestamps.
func sentResolutions(cluster *fakeCluster) (n int, commitTS uint64) {
	for _, m := range cluster.sent {
		if r := m.(*pb.TabletRequest).GetResolveLock(); r != nil {
			n, commitTS = n+len(r.Cells)+len(r.Intents), r.CommitTs
		}
	}
	return n, commitTS
}

func sentRollbacks(cluster *fakeCluster) (cells []string) {
	for _, m := range cluster.sent {
		for _, c := range m.(*pb.TabletRequest).GetRollback().GetCells() {
			cells = append(cells, string(c.Row)+"."+string(c.Column))
		}
	}
	return cells
}

func TestLockResolve(t *testing.T) {
	for _, tc := range []struct {
		name     string
		status   pb.Status
		commitTS uint64
		args     string
		code     int
		says     string
		resolved int
	}{
		{"committed", pb.Status_STATUS_COMMITTED, 9, "--all --older-than 0s", shell.ExitDone,
			"rolled forward, committed at 9", 2},
		{"acknowledgment", pb.Status_STATUS_COMMITTED, 9, "bank Joe", shell.ExitDone,
			"committed at 9, left to the nodes: only they", 0},
		{"rolled back", pb.Status_STATUS_ROLLED_BACK, 0, "--all --older-than 0s", shell.ExitDone,
			"rolled back\n", 3},
		{"alive", pb.Status_STATUS_LIVE, 0, "--all --older-than 0s", shell.ExitFailed,
			"alive, unchanged", 0},
		{"unknown", pb.Status_STATUS_UNKNOWN, 0, "--all --older-than 0s", shell.ExitFailed,
			"3 locks belong to live transactions", 0},
		{"young", pb.Status_STATUS_COMMITTED, 9, "--all", shell.ExitDone,
			"0 resolved, 0 alive, 3 too young", 0},
		{"one row", pb.Status_STATUS_COMMITTED, 9, "bank Bob", shell.ExitDone, "1 resolved", 1},
		{"one column", pb.Status_STATUS_COMMITTED, 9, "bank Bob bal", shell.ExitDone, "1 resolved", 1},
		{"another column", pb.Status_STATUS_COMMITTED, 9, "bank Bob other", shell.ExitDone, "0 resolved",
			0},
		{"forced", pb.Status_STATUS_LIVE, 0, "bank Bob --force --yes", shell.ExitDone,
			"rolled back by force", 1},
		{"json", pb.Status_STATUS_COMMITTED, 9, "bank Bob -o json", shell.ExitDone,
			`"outcome":"committed","commit_ts":9}`, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := lockedCluster(tc.status, tc.commitTS)
			code, stdout, stderr := runApp(t, cluster, nil,
				append([]string{"lock", "resolve"}, strings.Fields(tc.args)...)...)
			if code != tc.code || !strings.Contains(stdout+stderr, tc.says) {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
			if n, commitTS := sentResolutions(cluster); n != tc.resolved ||
				(n > 0 && commitTS != tc.commitTS) {
				t.Errorf("%d resolved at %d, want %d at %d", n, commitTS, tc.resolved, tc.commitTS)
			}
			forced := sentRollbacks(cluster)
			if want := strings.Contains(tc.args, "--force"); want != (len(forced) == 1) ||
				(want && forced[0] != "Bob.bal") {
				t.Errorf("rolled back by force: %v", forced)
			}
		})
	}
}

// A parked notification is marked at a new timestamp with the flag of a replay; others are
// unchanged.
func TestNotifyReplay(t *testing.T) {
	cluster := bankCluster()
	cluster.walked = oneOfEachLock
	cluster.mutate = func(*pb.TabletRequest) *pb.MutationResult { return &pb.MutationResult{} }
	code, stdout, stderr := runApp(t, cluster, nil, "notify", "replay", "count", "--all-parked")
	if code != shell.ExitDone || !strings.Contains(stdout, "1 rows are queued again for count") ||
		len(cluster.sent) != 1 {
		t.Fatalf("exit code %d, %d messages\n%s%s", code, len(cluster.sent), stdout, stderr)
	}
	n := cluster.sent[0].(*pb.TabletRequest).GetNotify()
	if !n.GetReplay() || n.Ts < uint64(mvcc.TimestampAt(1000)) || len(n.Cells) != 1 ||
		string(n.Cells[0].Row) != "Joe" {
		t.Errorf("sent %v", n)
	}

	cluster.sent = nil
	cluster.rows = map[string][]*pb.HistoryEntry{"Bob": {parseEntry(t, "Bob", "W bal 8 7 put x")}}
	if code, _, stderr := runApp(t, cluster, nil, "notify", "replay", "count", "Bob", "-o",
		"json"); code != shell.ExitDone || len(cluster.sent) != 1 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	// A weak column has no cells: any row can be replayed.
	if code, _, stderr := runApp(t, cluster, nil, "notify", "replay", "mail",
		"anybody"); code != shell.ExitDone || len(cluster.sent) != 2 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	cluster.mutate = func(*pb.TabletRequest) *pb.MutationResult {
		return &pb.MutationResult{Status: pb.Status_STATUS_NOTIFY_ONLY}
	}
	if code, _, _ := runApp(t, cluster, nil, "notify", "replay", "mail",
		"anybody"); code != shell.ExitFailed {
		t.Error("a refused replay is no failure")
	}
}

// Cells of two tablets are marked one by one.
func TestNotifyReplayAcrossTablets(t *testing.T) {
	cluster := bankCluster()
	cluster.walked = func(req *pb.WalkRequest) *pb.WalkResponse {
		page := &pb.WalkResponse{Done: true}
		if len(req.FromRow) == 0 && string(req.Column) == "bal" { // as before a split
			for _, row := range []string{"a", "z"} {
				page.Entries = append(page.Entries, &pb.WalkEntry{
					Cell:   &pb.Cell{Table: 16, Row: []byte(row), Column: []byte("bal")},
					Notify: &pb.Notify{Ts: 8, ParkedTs: 9},
				})
			}
		}
		return page
	}
	cluster.mutate = func(*pb.TabletRequest) *pb.MutationResult { return &pb.MutationResult{} }
	code, _, stderr := runApp(t, cluster, nil, "notify", "replay", "count", "--all-parked")
	if code != shell.ExitDone || len(cluster.sent) != 2 {
		t.Errorf("exit code %d, %d messages: %s", code, len(cluster.sent), stderr)
	}
}

func TestObserverReplay(t *testing.T) {
	at := func(rows uint64, change func(*pb.Backfill)) *pb.Backfill {
		b := &pb.Backfill{Name: "count", Ts: 8, Rows: rows, NextRow: []byte("m")}
		if change != nil {
			change(b)
		}
		return b
	}
	done := func(b *pb.Backfill) { b.Done = true }
	for _, tc := range []struct {
		args string
		then []*pb.Backfill
		code int
		says string
		sent []pb.BackfillRequest_Action
	}{
		{"", []*pb.Backfill{at(0, nil)}, shell.ExitDone, "replay of count: running, 0 rows marked",
			[]pb.BackfillRequest_Action{1}},
		{"--wait", []*pb.Backfill{at(0, nil), at(10, nil), at(20, done)}, shell.ExitDone,
			"done, 20 rows marked", []pb.BackfillRequest_Action{1, 0, 0}},
		{"--status", []*pb.Backfill{at(10, nil)}, shell.ExitDone, "; 1 of 2 tablets are done, next is row m",
			[]pb.BackfillRequest_Action{0}},
		{"--status -o json", []*pb.Backfill{at(10, nil)}, shell.ExitDone,
			`{"observer":"count","state":"running","ts":8,"rows":10,"next_row":"m"}`,
			[]pb.BackfillRequest_Action{0}},
		{"--status", nil, shell.ExitFailed, "was never replayed", []pb.BackfillRequest_Action{0}},
		{"--cancel", []*pb.Backfill{at(10, func(b *pb.Backfill) {
			b.Cancelled = true
		})}, shell.ExitDone, "cancelled", []pb.BackfillRequest_Action{2}},
		{"--wait", []*pb.Backfill{at(10, func(b *pb.Backfill) {
			b.Cancelled = true
		})}, shell.ExitFailed, "was cancelled", []pb.BackfillRequest_Action{1}},
		{"--wait", []*pb.Backfill{at(10, func(b *pb.Backfill) {
			b.Error = "no disk"
		})}, shell.ExitFailed, "no disk", []pb.BackfillRequest_Action{1}},
	} {
		cluster := bankCluster()
		cluster.backfills = tc.then
		code, stdout, stderr := runApp(t, cluster, nil,
			append([]string{"observer", "replay", "count"}, strings.Fields(tc.args)...)...)
		if code != tc.code || !strings.Contains(stdout+stderr, tc.says) {
			t.Errorf("%s: exit code %d\n%s%s", tc.args, code, stdout, stderr)
		}
		var sent []pb.BackfillRequest_Action
		for _, m := range cluster.sent {
			sent = append(sent, m.(*pb.BackfillRequest).Action)
		}
		if len(sent) != len(tc.sent) || sent[0] != tc.sent[0] {
			t.Errorf("%s: sent %v, want %v", tc.args, sent, tc.sent)
		}
	}
}

// TestLockForceOfAsyncCommit: --force decides an asynchronous commit by all of its cells: it commits
// if all of them are locked, and rolls back otherwise. Catches BROKEN=async_forced.
func TestLockForceOfAsyncCommit(t *testing.T) {
	for _, tc := range []struct {
		missing  bool // Joe's cell is not locked
		says     string
		commitTS uint64
	}{{false, "rolled forward, committed at 9", 9}, {true, "rolled back by force", 0}} {
		cluster := lockedCluster(pb.Status_STATUS_LIVE, 0)
		joe := &pb.Cell{Table: 16, Row: []byte("Joe"), Column: []byte("bal")}
		cluster.mutate = func(req *pb.TabletRequest) *pb.MutationResult {
			roll := req.GetRollback()
			switch {
			case req.GetCheckTxnStatus() != nil:
				return &pb.MutationResult{Status: pb.Status_STATUS_LIVE, Locks: []*pb.LockInfo{{
					Cell: req.GetCheckTxnStatus().Primary, Lock: &pb.Lock{StartTs: req.GetCheckTxnStatus().StartTs,
						Primary: req.GetCheckTxnStatus().Primary, Expiry: 1 << 62, MinCommitTs: 7, Secondaries: []*pb.Cell{joe}},
				}}}
			case roll == nil:
				return &pb.MutationResult{}
			case len(roll.Cells) == 1 && string(roll.Cells[0].Row) == "Bob": // the primary alone
				return &pb.MutationResult{Status: pb.Status_STATUS_LIVE, MinCommitTs: 7}
			case tc.missing && roll.Ask:
				return &pb.MutationResult{Status: pb.Status_STATUS_NOT_FOUND}
			case tc.missing:
				return &pb.MutationResult{}
			}
			return &pb.MutationResult{Status: pb.Status_STATUS_LIVE, MinCommitTs: 9}
		}
		code, stdout, stderr := runApp(t, cluster, nil, "lock", "resolve", "bank", "Bob", "--force", "--yes")
		if code != shell.ExitDone || !strings.Contains(stdout+stderr, tc.says) {
			t.Errorf("ASYNC-FORCED: missing %v: exit code %d, want %q\n%s%s", tc.missing, code, tc.says, stdout, stderr)
		}
		if n, at := sentResolutions(cluster); n != 1 || at != tc.commitTS {
			t.Errorf("ASYNC-FORCED: missing %v: %d resolved at %d, want one at %d", tc.missing, n, at, tc.commitTS)
		}
	}
}

package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
)

// shortHistory keeps a second of history and collects ten times per second.
func shortHistory(c *node.Config) { c.History = time.Second }

var past = percolator.Column{Table: "past", Name: "c"}

// until polls a condition of the node's status.
func until(ctx context.Context, t *testing.T, n *node.Node, what string,
	ok func(*pb.NodeStatusResponse) bool) *pb.NodeStatusResponse {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		status := n.Status()
		if ok(status) {
			return status
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s; history %v", what, n.Status().History)
		}
	}
}

// settled reports whether no tablet has garbage left.
func settled(s *pb.NodeStatusResponse) bool {
	for _, t := range s.Tablets {
		if t.Garbage > 0 {
			return false
		}
	}
	return true
}

// overwrite writes versions of a row and returns their commit timestamps.
func overwrite(ctx context.Context, t *testing.T, db *percolator.DB, row string,
	versions int) (commits []percolator.Timestamp) {
	t.Helper()
	for i := range versions {
		var at percolator.Timestamp
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(row, past, fmt.Appendf(nil, "%s/%d", row, i))
			return nil
		}, percolator.CommittedAt(&at))
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, at)
	}
	return commits
}

func readAt(ctx context.Context, db *percolator.DB, row string,
	at percolator.Timestamp) (string, error) {
	s, err := db.SnapshotAt(ctx, at)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	value, _, err := s.Get(ctx, row, past)
	return string(value), err
}

// TestTimeTravel: within the history every version is readable; below it the answer is
// ErrSnapshotTooOld, and the versions are gone from the store.
func TestTimeTravel(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := open(t, "", shortHistory)
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: past.Table,
		SplitKeys: []string{"m"}}); err != nil {
		t.Fatal(err)
	}
	commits := overwrite(ctx, t, n.DB(), "a", 20)
	for i, at := range commits {
		if got, err := readAt(ctx, n.DB(), "a", at); err != nil || got != fmt.Sprintf("a/%d", i) {
			t.Errorf("inside the history, version %d: %q, %v", i, got, err)
		}
	}
	status := until(ctx, t, n, "the safepoint passes the versions and they go",
		func(s *pb.NodeStatusResponse) bool {
			return s.History.Safepoint > uint64(commits[len(commits)-1]) && settled(s)
		})
	if status.History.Collected < uint64(len(commits)-1) {
		t.Errorf("%d entries collected, want %d old versions gone: %v", status.History.Collected,
			len(commits)-1, status.History)
	}
	_, err := readAt(ctx, n.DB(), "a", commits[3])
	if !errors.Is(err, percolator.ErrSnapshotTooOld) || !strings.Contains(err.Error(), "keep more history") {
		t.Errorf("below the history: %v, want ErrSnapshotTooOld and what to do", err)
	}
	if records := historyOf(ctx, t, n, "a"); records != 1 {
		t.Errorf("the row has %d entries, want the newest version alone", records)
	}
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if v, _, err := s.Get(ctx, "a", past); err != nil || string(v) != "a/19" {
		t.Errorf("now: %q, %v", v, err)
	}
}

// historyOf counts the entries of a row in all groups.
func historyOf(ctx context.Context, t *testing.T, n *node.Node, row string) int {
	t.Helper()
	id, err := handle.Client(n.DB()).TableID(ctx, past.Table)
	if err != nil {
		t.Fatal(err)
	}
	req := &pb.TabletRequest{
		Op: &pb.TabletRequest_History{
			History: &pb.HistoryRequest{Table: uint32(id), Row: []byte(row), Limit: 10_000},
		},
	}
	r, _, err := handle.Client(n.DB()).Send(ctx, wire.Position{Table: id, Row: row}, req)
	if err != nil {
		t.Fatal(err)
	}
	return len(r.GetHistory().GetEntries())
}

// TestHistoryOfALongRow: a request for all entries of a row that has more than the maximum is told
// that there are more.
func TestHistoryOfALongRow(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := open(t, "", nil)
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: past.Table}); err != nil {
		t.Fatal(err)
	}
	for part := range 2 { // of one batch each, so that both are committed when Transact returns
		err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for i := range mvcc.MaxHistory/2 + 5 {
				tx.Set("long", percolator.Column{Table: past.Table, Name: fmt.Sprint(part, ".", i)},
					[]byte("v"))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if records := historyOf(ctx, t, n, "long"); records != mvcc.MaxHistory+1 {
		t.Errorf("%d entries, want %d: one more than are shown", records, mvcc.MaxHistory+1)
	}
}

// TestOpenSnapshotKeepsItsHistory: an open snapshot, in the process or over the network, stays
// readable at any age while newer versions are written and collected; after it is closed history
// advances.
func TestOpenSnapshotKeepsItsHistory(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := open(t, "", shortHistory)
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: past.Table}); err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]*percolator.DB{"own": n.DB(), "remote": dial(t, n)} {
		t.Run(name, func(t *testing.T) {
			overwrite(ctx, t, n.DB(), name, 3)
			s, err := db.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			until(ctx, t, n, "the snapshot is held", func(st *pb.NodeStatusResponse) bool {
				return st.History.Holds > 0
			})
			commits := overwrite(ctx, t, n.DB(), name, 10)
			old := uint64(mvcc.TimestampAt(mvcc.Timestamp(s.StartTS()).Millis() + 3000))
			until(ctx, t, n, "the snapshot is three times as old as the history",
				func(st *pb.NodeStatusResponse) bool {
					return st.OracleLast > old
				})
			if v, _, err := s.Get(ctx, name, past); err != nil || string(v) != name+"/2" {
				t.Errorf("the old snapshot reads %q, %v", v, err)
			}
			until(ctx, t, n, "it says who holds history", func(st *pb.NodeStatusResponse) bool {
				return strings.Contains(st.History.BlockedBy, "holds history")
			})
			if h := n.Status().History; h.Safepoint > uint64(s.StartTS()) {
				t.Errorf("history %v; want it held at %d", h, s.StartTS())
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			until(ctx, t, n, "history moves on", func(st *pb.NodeStatusResponse) bool {
				return st.History.Safepoint > uint64(commits[8]) && st.History.Holds == 0 &&
					settled(st)
			})
		})
	}
}

// TestHoldOutlivesRestart: the lease of a running process is respected after the node's restart;
// one that is not renewed ends.
func TestHoldOutlivesRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	n := open(t, dir, shortHistory)
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: past.Table}); err != nil {
		t.Fatal(err)
	}
	commits := overwrite(ctx, t, n.DB(), "a", 3)
	transport := handle.Client(n.DB()).Transport()
	hold := &pb.HoldHistoryRequest{Holder: "elsewhere", Oldest: uint64(commits[1]), TtlMs: 5000}
	if r, err := transport.HoldHistory(ctx, hold); err != nil || r.TtlMs != 5000 ||
		r.HistoryMs != 1000 || r.Bound > hold.Oldest {
		t.Fatal(r, err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, shortHistory)
	overwrite(ctx, t, n.DB(), "a", 3)
	old := uint64(mvcc.TimestampAt(mvcc.Timestamp(commits[1]).Millis() + 3000))
	until(ctx, t, n, "the history would be over", func(s *pb.NodeStatusResponse) bool {
		return s.OracleLast > old
	})
	if got, err := readAt(ctx, n.DB(), "a", commits[1]); err != nil || got != "a/1" {
		t.Errorf("under a lease from before the restart: %q, %v", got, err)
	}
	until(ctx, t, n, "the lease ends", func(s *pb.NodeStatusResponse) bool {
		return s.History.Safepoint > uint64(commits[2]) && s.History.Holds == 0
	})
	if _, err := transport.HoldHistory(ctx, &pb.HoldHistoryRequest{}); err == nil {
		t.Error("a hold without a holder was granted")
	}
}

// TestUnresolvedSecondaryOutlivesHistory: a coordinator dies after the primary's commit, and the
// secondary is not read for longer than the history. Collection first resolves it: it is rolled
// forward, although the primary is overwritten and its old versions are deleted.
func TestUnresolvedSecondaryOutlivesHistory(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := open(t, "", func(c *node.Config) { shortHistory(c); c.Scanners = 0 })
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: past.Table,
		SplitKeys: []string{"m"}}); err != nil {
		t.Fatal(err)
	}
	primary, secondary := abandonSecondary(ctx, t, n, "a", "z")
	overwrite(ctx, t, n.DB(), "a", 5)
	last := overwrite(ctx, t, n.DB(), "a", 1)[0]
	until(ctx, t, n, "the primary's records are collected", func(s *pb.NodeStatusResponse) bool {
		return s.History.Safepoint > uint64(last) && settled(s)
	})
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if v, ok, err := s.Get(ctx, secondary, past); err != nil || !ok ||
		!bytes.Equal(v, []byte("both")) {
		t.Errorf("the secondary of a committed transaction is %q, %v, %v", v, ok, err)
	}
	if got := historyOf(ctx, t, n, primary); got != 1 {
		t.Errorf("the primary's row has %d entries", got)
	}
}

// abandonSecondary commits a transaction's primary and leaves its secondary locked.
func abandonSecondary(ctx context.Context, t *testing.T, n *node.Node, primary,
	secondary string) (string, string) {
	t.Helper()
	client := handle.Client(n.DB())
	id, err := client.TableID(ctx, past.Table)
	if err != nil {
		t.Fatal(err)
	}
	start, err := client.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first := mvcc.Cell{Table: id, Row: primary, Column: past.Name}
	must := func(row string, req *pb.TabletRequest) {
		t.Helper()
		r, _, err := client.Send(ctx, wire.Position{Table: id, Row: row}, req)
		if err != nil || r.GetMutation().GetStatus() != pb.Status_STATUS_OK {
			t.Fatal(r, err)
		}
	}
	for _, row := range []string{primary, secondary} {
		cell := mvcc.Cell{Table: id, Row: row, Column: past.Name}
		must(row, &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(start), Primary: wire.CellPB(first),
			Expiry: uint64(mvcc.TimestampAt(start.Millis() + 60_000)), Worker: &pb.Worker{},
			Writes: []*pb.CellWrite{
				{Cell: wire.CellPB(cell), Kind: pb.Kind_KIND_PUT, Value: []byte("both")},
			},
		}}})
	}
	commit, err := client.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	must(primary, &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
		StartTs: uint64(start), CommitTs: uint64(commit), Cells: []*pb.Cell{wire.CellPB(first)},
	}}})
	return primary, secondary
}

// TestDroppedTableGoes: a dropped table's rows leave the store once the history has passed the
// drop, its entry in the catalogue shrinks to a range, and requests with its id are refused.
func TestDroppedTableGoes(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := open(t, t.TempDir(), shortHistory)
	db := n.DB()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: past.Table,
		SplitKeys: []string{"3", "6"}}); err != nil {
		t.Fatal(err)
	}
	id, err := handle.Client(db).TableID(ctx, past.Table)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		overwrite(ctx, t, db, fmt.Sprintf("%d/%d", i%10, i), 1)
	}
	if err := db.DropTable(ctx, past.Table); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, n, "nothing is left of the table", func(s *pb.NodeStatusResponse) bool {
		c, err := handle.Client(db).Catalogue(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(c.DroppedTables) == 0 && len(c.Gone) == 1 && c.Gone[0].First == uint32(id) &&
			c.Gone[0].Last == uint32(id)
	})
	if c := n.Status().History.Collected; c < 40 {
		t.Errorf("%d entries collected of a table with 40 rows", c)
	}
	cell := mvcc.Cell{Table: id, Row: "3/3", Column: past.Name}
	r, _, err := handle.Client(db).Send(ctx, wire.Position{Table: id, Row: cell.Row},
		&pb.TabletRequest{Op: &pb.TabletRequest_Get{
			Get: &pb.GetRequest{
				At:    uint64(mvcc.TimestampAt(time.Now().UnixMilli())),
				Cells: []*pb.Cell{wire.CellPB(cell)},
			},
		}})
	if !errors.Is(err, txn.ErrNoTable) {
		t.Errorf("a read of a table that is gone: %v, %v", r, err)
	}
}

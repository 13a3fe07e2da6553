package tablet

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// Free bytes on a disk with the default watermark: below the watermark, below the part kept for
// entries in flight, and below the reserve that Commit never uses.
const (
	freeLow       = store.DefaultMinFreeBytes / 2
	freeExhausted = store.DefaultMinFreeBytes / 3
	freeNone      = 1 << 20
)

// fullRig is a rig on a disk that the test fills.
func fullRig(t *testing.T) (*rig, *atomic.Uint64) {
	free := &atomic.Uint64{}
	free.Store(math.MaxUint64)
	r := newRig(t, store.Options{InMemory: true, FreeBytes: func() (uint64, error) {
		return free.Load(), nil
	}})
	return r, free
}

// look makes the store measure its free space; its worker does so every second.
func look(s *store.Store) { _ = s.Room(0) }

const longValue = 3 << 20

// longOf is an operation long enough to make the store measure its free space.
func longOf(start mvcc.Timestamp, row string) *pb.TabletRequest {
	return onePhaseOf(start, append(put(row, strings.Repeat("x", longValue)),
		put(row+"'", strings.Repeat("x", longValue))...))
}

func askStatus() *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}}
}

// TestReadsOnFullDisk: on a full disk every write is refused at once, nothing that needs a write
// begins, and reads continue; once there is space writes do too.
func TestReadsOnFullDisk(t *testing.T) {
	r, free := fullRig(t)
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
	for _, c := range []struct {
		free   uint64
		commit pb.Error_Code
	}{{freeLow, 0}, {freeExhausted, pb.Error_CODE_DISK_FULL}, {freeNone, pb.Error_CODE_DISK_FULL}} {
		locked := r.take(1)
		r.do(2, prewriteOf(locked, "b", "2"))
		r.visible(2)
		free.Store(c.free)
		look(r.store)
		before := r.do(2, askStatus()).GetStatus().LastIndex
		if e := r.try(2, onePhaseOf(r.take(1),
			put("a", "refused"))).GetError(); e.GetCode() != pb.Error_CODE_DISK_FULL {
			t.Errorf("%d bytes free: a write is answered %v", c.free, e)
		}
		if e := r.try(2, commitOf(locked, r.take(1), "b")).GetError(); e.GetCode() != c.commit {
			t.Errorf("%d bytes free: a commit is answered %v, want %v", c.free, e, c.commit)
		}
		if last := r.do(2, askStatus()).GetStatus().LastIndex; c.commit != 0 && last != before {
			t.Errorf("%d bytes free: the log has grown from %d to %d", c.free, before, last)
		}
		if got := r.do(2, getOf(r.take(1), "a")).GetGet().Results[0].Value; string(got) != "1" {
			t.Errorf("%d bytes free: read %q", c.free, got)
		}
		free.Store(math.MaxUint64)
		look(r.store)
		r.do(2, commitOf(locked, r.take(1), "b"))
	}
	r.do(2, onePhaseOf(r.take(1), put("a", "3")))
}

// TestDiskFillsUnderWrite: an entry that encounters the full disk waits for space and is then
// written, with those behind it; nothing is restarted. Until then the tablet serves reads.
func TestDiskFillsUnderWrite(t *testing.T) {
	r, free := fullRig(t)
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
	free.Store(freeNone)
	waiting := r.start(2, longOf(r.take(1), "b"))
	r.until(2, "the entry waits for room", func(*pb.StatusResponse) bool { return r.logs.Full() })
	if got := r.do(2, getOf(r.take(1), "a")).GetGet().Results[0].Value; string(got) != "1" {
		t.Errorf("read %q, want 1", got)
	}
	mark := &pb.TabletRequest{Op: &pb.TabletRequest_Mark{Mark: &pb.MarkRequest{RaiseTo: 1}}}
	if e := r.try(MetaTabletID, mark).GetError(); e.GetCode() != pb.Error_CODE_DISK_FULL {
		t.Errorf("meta answers %v", e)
	}
	select {
	case a := <-waiting:
		t.Errorf("answered %v while nothing can be written", a)
	default:
	}
	free.Store(math.MaxUint64)
	await(t, waiting)
	if got := r.do(2, getOf(r.take(1), "b")).GetGet().Results[0].Value; len(got) != longValue {
		t.Errorf("read %d bytes of what had waited", len(got))
	}
	r.until(2, "writes are taken again", func(*pb.StatusResponse) bool {
		return r.try(2, onePhaseOf(r.take(1), put("a", "2"))).GetError() == nil
	})
}

// TestFollowerOnFullDisk: a follower without space acknowledges nothing and loses nothing; the
// group continues without it, and it catches up once there is space, whether the full disk was
// detected before an append or by it.
func TestFollowerOnFullDisk(t *testing.T) {
	for name, seen := range map[string]bool{"seen": true, "met by an append": false} {
		t.Run(name, func(t *testing.T) {
			// No election, even on a busy machine: the messages of a new leader would be mistaken
			// for the group's progress.
			g := newGroup(t, 3, 3, 10*testTick)
			leader := g.leader(groupTablet)
			slow := g.nodes[g.others(leader)[0]]
			g.write(groupTablet, "a", "1")
			g.even(groupTablet, 1, 2, 3)
			slow.free.Store(freeNone)
			// Before the group is closed, also when the test fails: the log waits for space.
			t.Cleanup(func() {
				slow.free.Store(math.MaxUint64)
				look(slow.store)
			})
			if seen {
				look(slow.store)
			}
			before := g.status(slow.id, groupTablet).LastIndex
			g.write(groupTablet, "b", strings.Repeat("x", 4<<20))
			for tries := 0; !seen; tries++ {
				g.wait("the disk is found to be full", func() bool {
					return slow.logs.Full() || slow.store.Exhausted() != nil
				})
				// Small entries, such as a new leader's first, are written before the disk is
				// measured.
				before = g.status(slow.id, groupTablet).LastIndex
				if slow.logs.Full() {
					break
				}
				if tries == 50 {
					t.Fatal("no append has encountered the full disk")
				}
				// The store's worker, which measures once a second, came before the append.
				slow.free.Store(math.MaxUint64)
				look(slow.store)
				g.even(groupTablet, 1, 2, 3)
				slow.free.Store(freeNone)
				g.write(groupTablet, "b", strings.Repeat("x", 4<<20))
			}
			for range 20 {
				g.write(groupTablet, "a", "2")
			}
			// One entry may have been in flight already: a new leader's first.
			if s := g.status(slow.id, groupTablet); s.LastIndex > before+1 {
				t.Errorf("the follower's log has grown from %d to %d on a full disk", before,
					s.LastIndex)
			}
			slow.free.Store(math.MaxUint64)
			look(slow.store)
			g.even(groupTablet, 1, 2, 3)
			if got := g.stored(slow.id, "a"); got != "2" {
				t.Errorf("the follower has %q", got)
			}
		})
	}
}

// TestLeaderOnFullDisk: a leader whose entries encounter the full disk transfers to a voter with
// space.
func TestLeaderOnFullDisk(t *testing.T) {
	// Slow ticks: under the race detector an operation of 6 MiB takes longer than an election by
	// testTick.
	g := newGroup(t, 3, 3, 100*time.Millisecond)
	g.write(groupTablet, "a", "1")
	var leader uint64
	var full *member
	var outcome <-chan result
	for waits := false; !waits; {
		leader = g.leader(groupTablet)
		full = g.nodes[leader]
		g.even(groupTablet, 1, 2, 3)
		op := longOf(g.take(1), "b")
		full.free.Store(freeNone)
		outcome = g.tell(leader, groupTablet, op)
		g.wait("the entry waits for room, or the operation is answered", func() bool {
			return full.logs.Full() || len(outcome) > 0
		})
		// Nothing waits if the store measured its space before the operation came, which it then
		// refuses, or if the leader was voted out on a busy machine.
		if waits = full.logs.Full(); !waits {
			full.free.Store(math.MaxUint64)
			look(full.store)
		}
	}
	g.leader(groupTablet, leader)
	if code := g.code(outcome); code != pb.Error_CODE_UNKNOWN &&
		code != pb.Error_CODE_NOT_PROPOSED && code != 0 {
		t.Errorf("what waited for room is answered %v", code)
	}
	g.write(groupTablet, "a", "2")
	full.free.Store(math.MaxUint64)
	look(full.store)
	g.even(groupTablet, 1, 2, 3)
	if got := g.stored(leader, "a"); got != "2" {
		t.Errorf("the former leader has %q", got)
	}
}

// TestAllOnFullDisks: where no voter has space the leader stays, refuses writes and serves reads.
func TestAllOnFullDisks(t *testing.T) {
	g := newGroup(t, 3, 3, testTick)
	g.write(groupTablet, "a", "1")
	g.even(groupTablet, 1, 2, 3)
	leader := g.leader(groupTablet)
	for _, m := range g.nodes {
		m.free.Store(freeNone)
		look(m.store)
	}
	for range 50 {
		r := g.at(leader, groupTablet, onePhaseOf(g.take(1), put("a", "2")))
		if code := r.GetError().GetCode(); code != pb.Error_CODE_DISK_FULL ||
			r.Error.RetryAfterMs == 0 {
			t.Fatalf("a write is answered %v", r)
		}
		if r := g.at(leader, groupTablet,
			getOf(g.take(1), "a")); string(r.GetGet().GetResults()[0].GetValue()) != "1" {
			t.Fatalf("a read is answered %v", r)
		}
	}
	for _, m := range g.nodes {
		m.free.Store(math.MaxUint64)
		look(m.store)
	}
	g.write(groupTablet, "a", "3")
}

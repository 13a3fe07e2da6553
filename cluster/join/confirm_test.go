package join

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/store"
)

// onDisk gives the node a directory.
func (h *testNode) onDisk(dir string) {
	h.s.t.Helper()
	if err := h.st.Close(); err != nil {
		h.s.t.Error(err)
	}
	st, err := store.Open(store.Options{Dir: dir, MemTableSize: 1 << 20})
	if err != nil {
		h.s.t.Fatal(err)
	}
	h.st = st
}

// waits reports whether the started node does not join for a minute.
func (h *testNode) waits() bool {
	select {
	case err := <-h.entered:
		h.entered <- err
		return false
	case <-time.After(time.Minute):
		return true
	}
}

// enters expects the started node to join within a minute.
func (h *testNode) enters(what string) {
	h.s.t.Helper()
	select {
	case err := <-h.entered:
		if err != nil {
			h.s.t.Errorf("%s: %s: %v", what, h.addr, err)
		}
	case <-time.After(time.Minute):
		h.s.t.Errorf("%s: %s does not join", what, h.addr)
	}
}

// trio is three nodes of one cluster that vote together, the first one in a directory.
func (s *testNetwork) trio(dir string) (all [3]*testNode) {
	s.t.Helper()
	all = [3]*testNode{s.build("a", 1), s.build("b", 1, "a"), s.build("c", 1, "a")}
	all[0].onDisk(dir)
	for _, h := range all {
		h.start()
	}
	if err := s.settle(time.Minute); err != nil {
		s.t.Fatal(err)
	}
	var voters []uint64
	for _, h := range all {
		voters = append(voters, h.self.Identity().NodeID)
	}
	for _, h := range all {
		h.voters = voters
		h.crash()
		h.start()
		h.enters("meta is there")
	}
	<-time.After(time.Minute) // all have each other's records
	return all
}

// TestOldCopyWaits: a directory is restored from a copy made before the node's last start, while
// meta is away. The other nodes have the later start on record, so it does not join, however often
// it is started; the node's own directory does.
func TestOldCopyWaits(t *testing.T) {
	dir, old := filepath.Join(t.TempDir(), "node"), filepath.Join(t.TempDir(), "copy")
	onTestNetwork(t, 1, func(s *testNetwork) {
		all := s.trio(dir)
		a := all[0]
		a.crash()
		a.onDisk(filepath.Join(t.TempDir(), "elsewhere")) // no process has the directory open
		if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		a.onDisk(dir)
		s.say(errors.New("meta has no leader"))
		a.start() // it is not registered, but the others receive its start
		a.enters("a restart without meta")
		for _, h := range all { // the others do not forget it
			h.crash()
			h.start()
		}
		for _, h := range all {
			h.enters("all start at once")
		}
		a.crash()
		a.onDisk(old)
		for range 2 * maxStarts {
			a.start()
			a.crash()
		}
		a.start()
		if !a.waits() {
			t.Fatal("UNCONFIRMED-START: an old copy votes")
		}
		if !strings.Contains(s.told(), "know a later start: this directory is an old copy") {
			t.Error("the log does not mention it")
		}
		a.crash()
		a.onDisk(dir)
		a.start()
		a.enters("the node's own directory")
	})
}

// TestRefusalOutweighsAMajority: only one of the other two nodes has a node's last start on record,
// and refuses an old copy, which the third one confirms. The copy does not vote, even if by its own
// records it is the only voter. The node's own directory votes.
func TestRefusalOutweighsAMajority(t *testing.T) {
	dir, old := filepath.Join(t.TempDir(), "node"), filepath.Join(t.TempDir(), "copy")
	onTestNetwork(t, 3, func(s *testNetwork) {
		all := s.trio(dir)
		a, b, c := all[0], all[1], all[2]
		a.crash()
		a.onDisk(filepath.Join(t.TempDir(), "elsewhere")) // no process has the directory open
		if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		a.onDisk(dir)
		s.say(errors.New("meta has no leader"))
		c.crash()
		a.start()
		a.enters("a restart that only one other node records")
		a.crash()
		c.start()
		c.enters("the node that has missed it")
		a.onDisk(old)
		a.start()
		if !a.waits() {
			t.Fatal("REFUSED-START: an old copy votes although a node refuses it")
		}
		if !strings.Contains(s.told(), "know a later start: this directory is an old copy") {
			t.Error("the log does not mention it")
		}
		a.crash()
		a.voters = a.voters[:1]
		a.start()
		if !a.waits() {
			t.Fatal("REFUSED-START: an old copy that is the only voter by its own records votes")
		}
		b.crash()
		if !a.waits() {
			t.Fatal("REFUSED-START: an old copy votes once the node that has refused it is gone")
		}
		a.crash()
		b.start()
		b.enters("the node that refuses")
		a.voters = b.voters
		a.onDisk(dir)
		a.start()
		a.enters("the node's own directory")
	})
}

// TestStartsAreConfirmed: while meta is away, a node of three waits for one other that, by its own
// records, votes with it; two that start together need no third.
func TestStartsAreConfirmed(t *testing.T) {
	onTestNetwork(t, 2, func(s *testNetwork) {
		all := s.trio(filepath.Join(t.TempDir(), "node"))
		s.say(errors.New("meta has no leader"))
		for _, h := range all {
			h.crash()
		}
		all[1].start()
		if !all[1].waits() {
			t.Error("a node of three starts alone")
		}
		if !strings.Contains(s.told(), "1 of the 3 voters, including this node, have confirmed its start") {
			t.Error("the log does not mention it")
		}
		all[2].start()
		all[1].enters("two of three")
		all[2].enters("two of three")
		all[0].voters = all[0].voters[:1]
		all[0].start()
		all[0].enters("it votes alone")
	})
}

// TestStartsAreKept: a node's record of another's starts survives its process, only increases, and
// is bounded.
func TestStartsAreKept(t *testing.T) {
	st, err := store.Open(store.Options{InMemory: true, MemTableSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, c := range []struct {
		incarnation uint64
		starts      []uint64
		want        bool
	}{
		{3, []uint64{1, 2, 3}, true},
		{3, []uint64{1, 2, 3}, true},
		{5, []uint64{1, 2, 3, 4, 5}, true},
		{4, []uint64{1, 2, 3, 4}, false},
		{9, []uint64{1, 2, 3, 4, 8}, false},
		{4, []uint64{1, 2, 3, 4, 5}, true}, // an earlier incarnation, late: confirmed, and nothing changes
		{6, []uint64{5, 6}, true},
		{7, nil, false},
		{7, make([]uint64, maxStarts+1), false},
	} {
		self, err := OpenSelf(st)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := self.Confirm(7, c.incarnation, c.starts); err != nil || got != c.want {
			t.Errorf("question %d: %v, %v", i, got, err)
		}
	}
}

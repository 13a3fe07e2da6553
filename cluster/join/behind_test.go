package join

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/store"
)

// advanceLog advances the node's Raft log, as in a running node, and returns its new position.
func (h *testNode) advanceLog() uint64 {
	h.s.t.Helper()
	before := h.st.LogReached()
	b := &store.Batch{}
	b.PutRecord("later", []byte{byte(before)})
	if err := h.st.StateWriter().Commit([]*store.Batch{b}); err != nil {
		h.s.t.Fatal(err)
	}
	if h.st.LogReached() <= before {
		h.s.t.Fatal("its log has not come further")
	}
	return h.st.LogReached()
}

// copied is a trio whose first node has been copied to the directory old, has continued in the same
// run, and is dead. reached is its last position.
func (s *testNetwork) copied(dir, old string) (all [3]*testNode, reached uint64) {
	s.t.Helper()
	all = s.trio(dir)
	a := all[0]
	a.crash()
	a.onDisk(filepath.Join(s.t.TempDir(), "elsewhere")) // no process has the directory open
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		s.t.Fatal(err)
	}
	a.onDisk(dir)
	return all, a.advanceLog()
}

// told makes the node record the first node's log position, as from a message.
func (h *testNode) told(node, reached uint64) {
	h.membership.ReachedBy(func(other, _ uint64) uint64 {
		if other == node {
			return reached
		}
		return 0
	})
}

// TestCopyOfTheSameRun: a node returns with a copy of its directory made in the same run. One of
// the others has recorded a later position, so it discards its replicas, once, and joins. Catches
// BROKEN=behind_confirmed.
func TestCopyOfTheSameRun(t *testing.T) {
	dir, old := filepath.Join(t.TempDir(), "node"), filepath.Join(t.TempDir(), "copy")
	onTestNetwork(t, 3, func(s *testNetwork) {
		all, reached := s.copied(dir, old)
		a := all[0]
		all[2].told(a.self.Identity().NodeID, reached)
		a.onDisk(old)
		a.start()
		a.enters("the copy")
		if !a.self.Discards() {
			t.Fatal("BEHIND-CONFIRMED: an older copy continues with replicas that have forgotten what they acknowledged")
		}
		if a.self.Reached() <= reached || !strings.Contains(s.told(), "this directory is an older copy") {
			t.Errorf("it has come to %d, and before to %d; said: %s", a.self.Reached(), reached, s.told())
		}
		a.crash()
		a.start() // before its replicas are discarded
		a.enters("once more")
		if !a.self.Discards() {
			t.Error("a crash makes it forget that its replicas are to be discarded")
		}
		if err := a.self.Discarded(); err != nil {
			t.Fatal(err)
		}
		a.crash()
		a.start()
		a.enters("afterwards")
		if a.self.Discards() {
			t.Error("it discards its replicas again")
		}
	})
}

// TestOwnDirectoryIsKept: a node that returns with its own directory discards nothing, also if its
// process was killed before others had confirmed the start.
func TestOwnDirectoryIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	onTestNetwork(t, 5, func(s *testNetwork) {
		all, reached := s.copied(dir, filepath.Join(t.TempDir(), "copy"))
		a := all[0]
		for _, h := range all[1:] {
			h.told(a.self.Identity().NodeID, reached)
		}
		s.hide(all[1:]...)
		a.start()
		a.crash()
		s.show(all[1:]...)
		for range 2 {
			a.start()
			a.enters("its own directory")
			if a.self.Discards() {
				t.Error("it passes for an older copy")
			}
			a.crash()
		}
	})
}

// TestCopyIsFoundLater: the nodes with later positions are absent while the copy starts, and
// return; or they have restarted and read the positions from their disks.
func TestCopyIsFoundLater(t *testing.T) {
	for name, restarts := range map[string]bool{"they come back": false, "they have started": true} {
		t.Run(name, func(t *testing.T) {
			dir, old := filepath.Join(t.TempDir(), "node"), filepath.Join(t.TempDir(), "copy")
			onTestNetwork(t, 4, func(s *testNetwork) {
				all, reached := s.copied(dir, old)
				a, knows := all[0], all[2]
				id := a.self.Identity().NodeID
				knows.told(id, reached)
				if restarts {
					<-time.After(3 * defaultUpkeep) // its disk is slow
					knows.crash()
					knows.start()
					knows.enters("a restart")
				} else {
					s.hide(knows)
				}
				a.onDisk(old)
				a.start()
				a.enters("the copy")
				if !restarts {
					if a.self.Discards() {
						t.Error("nobody knows, and it discards its replicas")
					}
					s.show(knows)
					knows.told(id, reached)
					<-time.After(3 * defaultUpkeep)
				}
				if !a.self.Discards() {
					t.Error("it is not found")
				}
			})
		})
	}
}

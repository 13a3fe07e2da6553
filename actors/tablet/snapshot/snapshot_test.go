package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// A snapshot transfers all entries of its range, of every group, replaces the previous ones, and
// keeps the vote.
func TestSnapshotArrives(t *testing.T) {
	for _, size := range []int{200, 1 << 20} {
		source, here := newSource(t, sentDescriptor()), newSite(t, "")
		want := source.contents(sentDescriptor())
		before := here.old()
		a, err := here.arrive(source.pieces(size))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Install(before, nil); err != nil {
			t.Fatal(err)
		}
		here.checkInstalled(want)
	}
}

// A snapshot contains every group: without its locks, a replica that becomes leader would allow
// writes over prewritten cells. This assertion catches BROKEN=snapshot_without_locks.
func TestSnapshotHoldsEveryGroup(t *testing.T) {
	source := newSource(t, sentDescriptor())
	count := map[mvcc.Group]int{}
	for _, p := range source.pieces(1 << 20) {
		for _, e := range p.Entries {
			count[mvcc.Group(e.Key[0])]++
		}
	}
	for _, g := range allGroups {
		if count[g] == 0 {
			t.Errorf("SNAPSHOT-GROUPS: the snapshot has no entry of group %c", g)
		}
	}
}

var errCrash = errors.New("crash")

// A crash at any step either leaves the replica unchanged or is completed at the next start from
// the staged entries. Without the marker a half-filled range would be served. Catches
// BROKEN=install_without_marker.
func TestInstallCutShort(t *testing.T) {
	source := newSource(t, sentDescriptor())
	want, pieces := source.contents(sentDescriptor()), source.pieces(200)
	for _, step := range []string{"marker", "clear", "fill", "flip", "unstage"} {
		for skip := range 2 {
			t.Run(fmt.Sprintf("%s-%d", step, skip), func(t *testing.T) {
				here := newSite(t, t.TempDir())
				before := here.old()
				untouched := here.contents(before)
				a, err := here.arrive(pieces)
				if err != nil {
					t.Fatal(err)
				}
				here.cutAt(step, skip, errCrash)
				err = a.Install(before, nil)
				reached := errors.Is(err, errCrash)
				if err != nil && !reached {
					t.Fatal(err)
				}
				here.reopen()
				if err := here.installer.Recover(); err != nil {
					t.Fatal(err)
				}
				if step == "marker" && reached {
					if got := here.contents(before); !slices.Equal(got, untouched) {
						t.Fatalf("HALF-INSTALLED: %d entries before the installation began, %d after", len(untouched), len(got))
					}
					return
				}
				if r, ok, err := StoredReplica(here.store, sentTablet); !ok || err != nil ||
					r.Descriptor.Epoch != 4 {
					t.Fatalf("HALF-INSTALLED: a crash at %q leaves the old state over what is there of the new: %v %v", step, r.Descriptor, err)
				}
				here.checkInstalled(want)
			})
		}
	}
}

// A snapshot that does not fit is refused with a reason and changes nothing.
func TestSnapshotRefused(t *testing.T) {
	source := newSource(t, sentDescriptor())
	good := source.pieces(200)
	if len(good) < 4 {
		t.Fatalf("%d pieces", len(good))
	}
	edit := func(i int, f func(c *wire.SnapshotChunk)) []*wire.SnapshotChunk {
		out := slices.Clone(good)
		out[i] = proto.CloneOf(out[i])
		f(out[i])
		return out
	}
	outside := groupEntry(mvcc.GroupWrite, 16, "a", "v")
	last := len(good) - 1
	for _, c := range []struct {
		name   string
		pieces []*wire.SnapshotChunk
		want   error
	}{
		{"a changed value", edit(1, func(c *wire.SnapshotChunk) {
			c.Entries[0].Value = []byte("other")
		}), ErrDamaged},
		{"a lost entry", edit(1, func(c *wire.SnapshotChunk) {
			c.Entries = c.Entries[1:]
		}), ErrDamaged},
		{"another whole", edit(last, func(c *wire.SnapshotChunk) {
			c.Total++
		}), ErrDamaged},
		{"a lost piece", slices.Concat(good[:2], good[3:]), ErrOrder},
		{"a doubled piece", slices.Concat(good[:2], good[1:]), ErrOrder},
		{"no first piece", good[1:], ErrOrder},
		{"pieces of another", edit(2, func(c *wire.SnapshotChunk) {
			c.Id = "other"
		}), ErrOrder},
		{"a row of another tablet", edit(1, func(c *wire.SnapshotChunk) {
			c.Entries = []*wire.Effect{{Key: outside.Key, Value: outside.Value}}
			c.Checksum = sumOf(c.Entries)
		}), store.ErrForeignEntry},
		{"another tablet", edit(0, func(c *wire.SnapshotChunk) {
			c.TabletId++
		}), ErrForeign},
		{"another replica", edit(0, func(c *wire.SnapshotChunk) {
			c.ToReplica = 1
		}), ErrDamaged},
		{"another index", edit(0, func(c *wire.SnapshotChunk) {
			c.Header.Index++
		}), ErrDamaged},
		{"a state without the replica", edit(0, func(c *wire.SnapshotChunk) {
			state := &wire.TabletState{}
			if err := proto.Unmarshal(c.Header.State, state); err != nil {
				t.Fatal(err)
			}
			conf, err := proto.Marshal(&raftpb.ConfState{Voters: []uint64{state.ReplicaId}})
			if err != nil {
				t.Fatal(err)
			}
			state.ConfState = conf
			if c.Header.State, err = proto.Marshal(state); err != nil {
				t.Fatal(err)
			}
		}), ErrTooEarly},
		{"a state that is none", edit(0, func(c *wire.SnapshotChunk) {
			c.Header.State = []byte{1, 2, 3}
		}), ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			here := newSite(t, "")
			before := here.old()
			want := here.contents(before)
			if _, err := here.arrive(c.pieces); !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if err := here.installer.Recover(); err != nil {
				t.Fatal(err)
			}
			if got := here.contents(before); !slices.Equal(got, want) {
				t.Fatal("the replica's rows have changed")
			}
			if r, ok, err := StoredReplica(here.store, sentTablet); !ok || err != nil ||
				r.Descriptor.Epoch != 3 {
				t.Fatalf("the replica's state has changed: %v %v", r, err)
			}
		})
	}
	if _, err := (&Installer{}).Arrive(hereNode+1, good[0]); !errors.Is(err, ErrForeign) {
		t.Errorf("on another node: %v", err)
	}
}

// A destroyed replica leaves only its tombstone, also when its removal is interrupted after the
// tombstone was written.
func TestDestroyCutShort(t *testing.T) {
	for _, step := range []string{"tombstone", "clear", "flip", ""} {
		t.Run("at "+step, func(t *testing.T) {
			here := newSite(t, t.TempDir())
			before := here.old()
			here.cutAt(step, 0, errCrash)
			if err := here.installer.Destroy(sentTablet, 3); (step == "") != (err == nil) {
				t.Fatal(err)
			}
			here.reopen()
			if err := here.installer.Recover(); err != nil {
				t.Fatal(err)
			}
			if step == "tombstone" {
				if _, ok, err := StoredReplica(here.store, sentTablet); !ok || err != nil {
					t.Fatalf("it is gone without a tombstone: %v", err)
				}
				return
			}
			if got := here.contents(before); len(got) > 0 {
				t.Fatalf("%d entries are left", len(got))
			}
			if _, err := here.store.OpenLog(sentTablet); !errors.Is(err, store.ErrNoLog) {
				t.Fatalf("its log: %v", err)
			}
			snap := here.store.Snap()
			defer snap.Close()
			if next, err := NextReplica(snap, sentTablet); next != 3 || err != nil {
				t.Fatalf("tombstone for those below %d: %v", next, err)
			}
			if stored, err := StoredReplicas(here.store); len(stored) > 0 || err != nil {
				t.Fatalf("the stored replicas are %v, %v, want none", stored, err)
			}
		})
	}
}

// A tombstone never decreases.
func TestTombstoneGrows(t *testing.T) {
	here := newSite(t, "")
	for _, next := range []uint64{5, 3, 8} {
		if err := here.installer.Destroy(sentTablet, next); err != nil {
			t.Fatal(err)
		}
	}
	snap := here.store.Snap()
	defer snap.Close()
	if next, err := NextReplica(snap, sentTablet); next != 8 || err != nil {
		t.Fatalf("the next replica is %d, %v, want 8", next, err)
	}
}

// A store written before replication holds the only voter.
func TestOldStateIsReplicaOne(t *testing.T) {
	state := &wire.TabletState{Tablet: &pb.TabletDescriptor{TabletId: 2}}
	conf, err := confOf(state)
	if err != nil || state.ReplicaId != 1 || !slices.Equal(conf.Voters, []uint64{1}) {
		t.Errorf("replica %d of %v, %v", state.ReplicaId, conf, err)
	}
}

package simtest

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Bounds of what is told of replicas that differ.
const (
	maxToldKeys = 12      // keys that not all replicas have alike
	maxWalked   = 1 << 20 // entries of one replica that are looked at
)

// stored is what one node's store holds of a tablet's rows.
type stored struct {
	node    uint64
	applied store.Applied
	values  map[string]uint64 // hashes, by key
}

// differences names the keys of the tablet that not all nodes' stores hold alike, as they
// are now: later than the checksums that told them apart, and each store at an entry of
// its own, which is named. Empty: there are none any more.
func (c *Cluster) differences(ctx context.Context, d *pb.TabletDescriptor) string {
	var all []stored
	seed := maphash.MakeSeed()
	for _, m := range c.list() {
		l := m.up()
		if l == nil {
			continue
		}
		status, err := l.transport.NodeStatus(ctx)
		if err != nil || wire.ReplicaOn(d, status.GetNodeId()) == nil {
			continue
		}
		s, err := holds(m.store.Load(), d, seed)
		if err != nil {
			return fmt.Sprintf("what node %d holds cannot be read: %v", status.GetNodeId(), err)
		}
		s.node = status.GetNodeId()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b stored) int { return cmp.Compare(a.node, b.node) })
	return tell(all)
}

func holds(st *store.Store, d *pb.TabletDescriptor, seed maphash.Seed) (s stored, err error) {
	snap := st.SnapWithLocks()
	defer snap.Close()
	if s.applied, _, err = snap.Applied(d.TabletId); err != nil {
		return s, err
	}
	s.values = map[string]uint64{}
	start := wire.StartOf(d)
	end, bounded := wire.EndOf(d)
	rows := store.Rows{
		Table: start.Table, Row: start.Row, EndTable: end.Table, EndRow: end.Row, Bounded: bounded,
	}
	err = snap.Cursor(rows).Each(func(key, value []byte) bool {
		s.values[string(key)] = maphash.Bytes(seed, value)
		return len(s.values) < maxWalked
	})
	return s, err
}

// tell lists the keys that are not in all of them with the same value.
func tell(all []stored) string {
	nodes := map[string][]uint64{} // that have the key
	unlike := map[string]bool{}
	for _, s := range all {
		for k, v := range s.values {
			nodes[k] = append(nodes[k], s.node)
			other, ok := all[0].values[k]
			unlike[k] = unlike[k] || !ok || other != v
		}
	}
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "\n  node %d: %d entries at %d of term %d, epoch %d, said to be %d bytes",
			s.node, len(s.values), s.applied.Index,
			s.applied.Term, s.applied.Epoch, s.applied.Bytes)
	}
	told := 0
	for _, k := range slices.Sorted(maps.Keys(nodes)) {
		if !unlike[k] && len(nodes[k]) == len(all) {
			continue
		}
		if told++; told <= maxToldKeys {
			fmt.Fprintf(&b, "\n  %s: ", nameOf(k))
			if len(nodes[k]) == len(all) {
				b.WriteString("other values")
			} else {
				fmt.Fprintf(&b, "only on nodes %v", nodes[k])
			}
		}
	}
	if told > maxToldKeys {
		fmt.Fprintf(&b, "\n  and %d more", told-maxToldKeys)
	}
	return b.String()
}

func nameOf(key string) string {
	g, c, ts, err := store.DecodeKey([]byte(key))
	if err != nil {
		return fmt.Sprintf("%q", key)
	}
	return fmt.Sprintf("%c table %d row %q class %v column %q at %d", g, c.Table, c.Row, c.Class,
		c.Column, ts)
}

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

// Limits of a report on replicas that differ.
const (
	maxReportedKeys = 12      // keys that differ between replicas
	maxWalked       = 1 << 20 // entries read of one replica
)

// stored is one store's contents of a tablet.
type stored struct {
	node    uint64
	applied store.Applied
	values  map[string]uint64 // hashes, by key
}

// differences describes the contents of the tablet in each node's store, and lists the keys that
// differ. It reads the current state, which is later than the checksums that differed, and at a
// different Raft entry in each store, which it reports.
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
			return fmt.Sprintf("cannot read the store of node %d: %v", status.GetNodeId(), err)
		}
		s.node = status.GetNodeId()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b stored) int { return cmp.Compare(a.node, b.node) })
	return report(all)
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

// report describes each store's contents, and lists the keys that do not have the same value in
// all.
func report(all []stored) string {
	nodes := map[string][]uint64{} // by key: the nodes that have it
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
		fmt.Fprintf(&b, "\n  node %d: %d entries at index %d of term %d, epoch %d, recorded size %d bytes",
			s.node, len(s.values), s.applied.Index,
			s.applied.Term, s.applied.Epoch, s.applied.Bytes)
	}
	reported := 0
	for _, k := range slices.Sorted(maps.Keys(nodes)) {
		if !unlike[k] && len(nodes[k]) == len(all) {
			continue
		}
		if reported++; reported <= maxReportedKeys {
			fmt.Fprintf(&b, "\n  %s: ", nameOf(k))
			if len(nodes[k]) == len(all) {
				b.WriteString("different values")
			} else {
				fmt.Fprintf(&b, "only on nodes %v", nodes[k])
			}
		}
	}
	if reported > maxReportedKeys {
		fmt.Fprintf(&b, "\n  and %d more", reported-maxReportedKeys)
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

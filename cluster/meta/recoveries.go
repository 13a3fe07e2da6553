package meta

import (
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Recoveries of the cluster from the loss of a quorum (docs/adr/0055). A recovery that recreated
// the meta tablet writes its record with its other changes before any node runs (Recovered);
// otherwise the first node that reaches meta does (Note). Records are never removed.

// prefixRecovery is the prefix of the rows of recoveries, one for each plan.
const prefixRecovery = "recovery/"

// Recoveries are the recoveries from the loss of a quorum.
type Recoveries struct {
	records
	nodes *NodeTable
}

// Unverified returns the recoveries that have not been verified.
func (r *Recoveries) Unverified(ctx context.Context) ([]*pb.Recovery, error) {
	all, err := list[*pb.Recovery](ctx, r.records, prefixRecovery)
	return slices.DeleteFunc(all, func(one *pb.Recovery) bool {
		return one.VerifiedUnixMs != 0
	}), err
}

// Note records the recovery, unless it is recorded, and removes the nodes that it declared dead
// from the node table, even if they hold replicas. It may be repeated.
func (r *Recoveries) Note(ctx context.Context, recovery *pb.Recovery) error {
	for _, id := range recovery.Dead {
		if err := r.nodes.declareDead(ctx, id); err != nil {
			return err
		}
	}
	_, err := update(ctx, r.records, prefixRecovery+recovery.Plan,
		func(have *pb.Recovery) (*pb.Recovery, []change, error) {
			if have != nil {
				return have, nil, nil
			}
			return recovery, nil, nil
		})
	return err
}

// Finish records that the recovery by the plan was verified at the given time, unless an
// earlier verification is recorded. CODE_INVALID if there is no such recovery.
func (r *Recoveries) Finish(ctx context.Context, plan string, at time.Time) (*pb.Recovery, error) {
	return update(ctx, r.records, prefixRecovery+plan,
		func(have *pb.Recovery) (*pb.Recovery, []change, error) {
			if have == nil {
				return nil, nil, refuse(pb.Error_CODE_INVALID, "there is no recovery by plan %q", plan)
			}
			if have.VerifiedUnixMs == 0 {
				have.VerifiedUnixMs = at.UnixMilli()
			}
			return have, nil, nil
		})
}

// declareDead removes the record of a lost node and adds its id to the forgotten ones, so that
// its directory is rejected.
func (t *NodeTable) declareDead(ctx context.Context, id uint64) error {
	return retry(ctx, func() (bool, error) {
		f, forgotten, err := load[*wire.ForgottenNodes](ctx, t.records, rowForgotten)
		if err != nil {
			return false, err
		}
		old, err := t.get(ctx, nodeRow(id))
		if err != nil || old == nil && slices.Contains(f.Nodes, id) {
			return err == nil, err
		}
		value, err := withForgotten(f, id)
		if err != nil {
			return false, err
		}
		changes := []change{{row: rowForgotten, old: forgotten, value: value}}
		if old != nil {
			changes = append(changes, change{row: nodeRow(id), old: old})
		}
		return t.swap(ctx, changes...)
	})
}

// withForgotten returns the record of forgotten nodes with the ids added.
func withForgotten(f *wire.ForgottenNodes, ids ...uint64) ([]byte, error) {
	for _, id := range ids {
		if !slices.Contains(f.Nodes, id) {
			f.Nodes = append(f.Nodes, id)
		}
	}
	return encode(f)
}

// Floors are lower bounds for the counters and versions of meta: the highest values found in any
// store of the cluster.
type Floors struct {
	Tablet, Table, Catalogue uint64
}

// Recovered returns the rows of the meta tablet that a recovery writes while no node runs, by
// row; a nil value deletes the row. rows are all stored rows.
func Recovered(rows map[string][]byte, recovery *pb.Recovery,
	above Floors) (map[string][]byte, error) {
	out := map[string][]byte{}
	f, err := decode[*wire.ForgottenNodes](rowForgotten, rows[rowForgotten])
	if err != nil {
		return nil, err
	}
	if out[rowForgotten], err = withForgotten(f, recovery.Dead...); err != nil {
		return nil, err
	}
	for _, id := range recovery.Dead {
		out[nodeRow(id)] = nil
	}
	if out[prefixRecovery+recovery.Plan], err = encode(recovery); err != nil {
		return nil, err
	}
	for row, floor := range map[string]uint64{
		rowNextTablet: max(above.Tablet+1, cluster.FirstFreeTablet),
		rowNextTable:  max(above.Table+1, uint64(mvcc.FirstUserTable)),
	} {
		if value := rows[row]; len(value) >= 8 && binary.BigEndian.Uint64(value) >= floor {
			continue
		}
		value := binary.BigEndian.AppendUint64(nil, floor)
		out[row] = binary.BigEndian.AppendUint64(value, rand.Uint64())
	}
	// Tablets ignore a catalogue unless its version is above their applied one.
	c, err := decode[*pb.Catalogue](rowCatalogue, rows[rowCatalogue])
	if err != nil || c.Version >= above.Catalogue {
		return out, err
	}
	c.Version = above.Catalogue + 1
	out[rowCatalogue], err = encode(c)
	return out, err
}

// StoredNodes returns the node table from stored rows of the meta tablet.
func StoredNodes(rows map[string][]byte) ([]*wire.NodeRecord, error) {
	return stored[*wire.NodeRecord](rows, prefixNode)
}

// StoredTablets returns the tablet map from stored rows of the meta tablet.
func StoredTablets(rows map[string][]byte) ([]*pb.TabletDescriptor, error) {
	return stored[*pb.TabletDescriptor](rows, prefixTablet)
}

// stored decodes the rows with the prefix.
func stored[M proto.Message](rows map[string][]byte, prefix string) (out []M, err error) {
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		if !strings.HasPrefix(row, prefix) {
			continue
		}
		m, err := decode[M](row, rows[row])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

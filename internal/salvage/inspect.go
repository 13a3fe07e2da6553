package salvage

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Inspection of one store.

// format is the version of the files with inspections and plans.
const format = 1

// Descriptor is a tablet's descriptor, in JSON as protobuf writes it.
type Descriptor struct{ *pb.TabletDescriptor }

// MarshalJSON implements json.Marshaler.
func (d Descriptor) MarshalJSON() ([]byte, error) { return protojson.Marshal(d.TabletDescriptor) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Descriptor) UnmarshalJSON(b []byte) error {
	d.TabletDescriptor = &pb.TabletDescriptor{}
	return protojson.Unmarshal(b, d.TabletDescriptor)
}

// Inspection describes the contents of one store.
type Inspection struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Node    uint64 `json:"node"`
	// Starts are the random numbers that identify the directory's last starts, oldest first; Heard
	// is that of the last known start of each other node.
	Starts      []uint64          `json:"starts"`
	Heard       map[uint64]uint64 `json:"heard"`
	Fingerprint string            `json:"fingerprint"` // changes with each start and each log entry
	Recovery    join.Recovery     `json:"recovery"`    // the last one applied to this directory
	Replicas    []Replica         `json:"replicas"`
	Highest     uint64            `json:"highest_ts"`     // highest of all timestamps in the store
	Table       uint64            `json:"highest_table"`  // highest id in a tablet's bounds
	Catalogue   uint64            `json:"catalogue"`      // the highest version of the catalogue
	Nodes       []Node            `json:"nodes"`          // the known nodes of the cluster
	Meta        *MetaTablet       `json:"meta,omitempty"` // nil: the store has no replica of meta
}

// Replica is a replica in the store, or one that applying another replica's log will create.
type Replica struct {
	Tablet    uint64     `json:"tablet"`
	Replica   uint64     `json:"replica"`
	Stored    Descriptor `json:"stored"`  // as of the last entry that is applied
	Settled   Descriptor `json:"settled"` // as of the last entry that is known to be committed
	Final     Descriptor `json:"final"`   // as of the last entry of its log
	Committed uint64     `json:"committed"`
	Last      uint64     `json:"last"`
	LastTerm  uint64     `json:"last_term"`
	Term      uint64     `json:"term"`
	Newest    uint64     `json:"newest_ts"` // the highest timestamp in its rows
	// Stale reports that its log lacks entries that it has acknowledged, so that it does not vote.
	Stale bool `json:"stale,omitempty"`
	// Frozen is the tablet into which this one is about to be merged, as of the last entry of the
	// log; 0 means none.
	Frozen uint64 `json:"frozen,omitempty"`
	// Takings are the unapplied entries of the log that merge another tablet into this one.
	Takings []Taking `json:"takings,omitempty"`
	// Born is the tablet from which an unapplied entry will split this one off; 0 means the
	// replica is in the store.
	Born uint64 `json:"born,omitempty"`
}

// Taking is a log entry that merges a frozen tablet into the replica's own.
type Taking struct {
	Tablet uint64     `json:"tablet"` // id of the frozen tablet
	Epoch  uint64     `json:"epoch"`  // of the frozen tablet
	Before Descriptor `json:"before"` // the replica's own tablet before the entry
	Index  uint64     `json:"index"`  // of the preceding entry
	Term   uint64     `json:"term"`   // of the preceding entry
}

// waits reports whether the replica is empty because it waits for its first snapshot.
func (r *Replica) waits() bool { return r.Stored.GetEpoch() == 0 }

// Node is a node of the cluster and its known addresses.
type Node struct {
	Node      uint64   `json:"node"`
	Addresses []string `json:"addresses"`
}

// MetaTablet is the contents of a replica of the meta tablet with its whole log applied.
type MetaTablet struct {
	Tablets []Descriptor `json:"tablets"` // the tablet map
	Nodes   []Node       `json:"nodes"`   // the node table
}

// ErrNoNode reports that the store does not belong to a node of a cluster.
var ErrNoNode = errors.New("salvage: the directory belongs to no node of a cluster")

// Inspect reads the store. It completes installations that a crash interrupted, as the node's next
// start would, and changes nothing else. No other process may have the store open. Errors: ErrNoNode,
// join.ErrUnfinishedRecovery.
func Inspect(st *store.Store) (*Inspection, error) {
	self, known, err := join.ReadStored(st)
	if err != nil || !known {
		return nil, errors.Join(err, ErrNoNode)
	}
	if self.Recovery.Plan != "" && !self.Recovery.Applied {
		return nil, join.ErrUnfinishedRecovery
	}
	if err := installing(st, func(i *snapshot.Installer) error { return i.Recover() }); err != nil {
		return nil, err
	}
	in := &Inspection{
		Format: format, Cluster: self.ClusterID, Node: self.NodeID, Starts: self.Starts,
		Heard: self.Heard, Recovery: self.Recovery,
	}
	for _, n := range self.Nodes {
		in.Nodes = append(in.Nodes, Node{n.NodeId, addresses(n.Listen, n.Peer)})
	}
	stored, err := snapshot.StoredReplicas(st)
	if err != nil {
		return nil, err
	}
	for _, r := range stored {
		if err := in.replica(st, r.Tablet); err != nil {
			return nil, err
		}
	}
	in.Fingerprint = in.fingerprint()
	return in, nil
}

func addresses(all ...string) (out []string) {
	for _, a := range all {
		if a != "" {
			out = append(out, a)
		}
	}
	return out
}

// replica adds the tablet's replica, and those that its log creates.
func (in *Inspection) replica(st *store.Store, id uint64) error {
	r := Replica{Tablet: id}
	rows := map[string][]byte{} // of the meta tablet, written by unapplied entries
	out, err := tablet.Inspect(st, id, func(f *wire.Effect) {
		ts, _ := timestampOf(f.Key, f.Value)
		r.Newest = max(r.Newest, uint64(ts))
		if g, c, _, err := store.DecodeKey(f.Key); err == nil && g == mvcc.GroupRaw && id == cluster.MetaTablet {
			rows[c.Row], _ = store.DecodePlain(f.Value) // nil if the effect deletes the row
		}
	})
	if err != nil {
		return fmt.Errorf("salvage: inspect the replica of tablet %d: %w", id, err)
	}
	r.Replica, r.Stored = out.Replica, Descriptor{out.Stored}
	r.Settled, r.Final = Descriptor{out.Settled}, Descriptor{out.Final}
	r.Committed, r.Last, r.LastTerm, r.Term = out.Committed, out.Last, out.LastTerm, out.Term
	r.Frozen = out.Frozen.GetTabletId()
	for _, t := range out.Takings {
		r.Takings = append(r.Takings, Taking{t.Right.TabletId, t.Right.Epoch, Descriptor{t.Before}, t.Index, t.Term})
	}
	if r.Stale, err = snapshot.IsStale(st, id, out.Replica); err != nil {
		return err
	}
	snap := st.SnapWithLocks()
	defer snap.Close()
	if r.Newest, err = newest(snap, out.Stored, r.Newest); err != nil {
		return err
	}
	in.Highest = max(in.Highest, r.Newest, out.Mark, uint64(out.Bound), uint64(out.Safepoint))
	in.Catalogue = max(in.Catalogue, out.Catalogue)
	in.Replicas = append(in.Replicas, r)
	for _, d := range append(out.Born, out.Stored) {
		in.Table = max(in.Table, uint64(d.StartTable), uint64(d.EndTable))
	}
	for _, d := range out.Born {
		in.Replicas = append(in.Replicas, Replica{
			Tablet: d.TabletId, Replica: out.Replica, Stored: Descriptor{d}, Settled: Descriptor{d}, Final: Descriptor{d},
			Committed: store.InitialIndex, Last: store.InitialIndex, LastTerm: store.InitialTerm,
			Term: store.InitialTerm, Newest: r.Newest, Born: id,
		})
	}
	if id == cluster.MetaTablet && !r.waits() {
		in.Meta, err = readMeta(snap, rows)
	}
	return err
}

// readMeta reads the node table and the tablet map of the meta tablet. later holds rows written after
// the Snap.
func readMeta(snap *store.Snap, later map[string][]byte) (*MetaTablet, error) {
	rows, err := metaRows(snap)
	if err != nil {
		return nil, err
	}
	for row, value := range later {
		if delete(rows, row); value != nil {
			rows[row] = value
		}
	}
	nodes, err := meta.StoredNodes(rows)
	if err != nil {
		return nil, err
	}
	tablets, err := meta.StoredTablets(rows)
	if err != nil {
		return nil, err
	}
	m := &MetaTablet{}
	for _, n := range nodes {
		m.Nodes = append(m.Nodes, Node{n.NodeId, addresses(n.Listen, n.Peer)})
	}
	for _, d := range tablets {
		m.Tablets = append(m.Tablets, Descriptor{d})
	}
	return m, nil
}

// metaRows reads all rows of the meta tablet.
func metaRows(snap *store.Snap) (map[string][]byte, error) {
	rows := map[string][]byte{}
	for c, err := range snap.RawCells(mvcc.Span{Table: mvcc.MetaTable}) {
		if err != nil {
			return nil, fmt.Errorf("salvage: read the meta tablet: %w", err)
		}
		rows[c.Cell.Row] = c.Value
	}
	return rows, nil
}

// newest returns the highest timestamp in the tablet's rows, or least if that is higher.
func newest(snap *store.Snap, d *pb.TabletDescriptor, least uint64) (uint64, error) {
	var fault error
	err := snap.Cursor(snapshot.Rows(d)).Each(func(key, value []byte) bool {
		ts, err := timestampOf(key, value)
		fault = err
		least = max(least, uint64(ts))
		return err == nil
	})
	if err := errors.Join(err, fault); err != nil {
		return 0, fmt.Errorf("salvage: read tablet %d: %w", d.GetTabletId(), err)
	}
	return least, nil
}

// timestampOf returns the highest timestamp in an entry of the state, or 0 if it has none.
func timestampOf(key, value []byte) (mvcc.Timestamp, error) {
	g, _, ts, err := store.DecodeKey(key)
	if err != nil || ts != 0 || value == nil {
		return ts, err
	}
	switch g {
	case mvcc.GroupWrite, mvcc.GroupLocked:
		w, err := store.DecodeWrite(value)
		return max(w.CommitTS, w.StartTS), err
	case mvcc.GroupLock:
		l, err := store.DecodeLock(value)
		return l.StartTS, err
	case mvcc.GroupNotify:
		n, err := store.DecodeNotify(value)
		return n.TS, err
	}
	return 0, nil
}

// fingerprint returns a checksum that every start of the node and every new log entry changes.
func (in *Inspection) fingerprint() string {
	b := append([]byte(in.Cluster), 0)
	add := func(numbers ...uint64) {
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, n)
		}
	}
	add(in.Node)
	add(in.Starts...)
	for _, r := range in.Replicas {
		add(r.Tablet, r.Replica, r.Stored.GetEpoch(), r.Last, r.LastTerm, r.Term)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// installing calls fn with an installer of the store, and then stops the installer's writers.
func installing(st *store.Store, fn func(*snapshot.Installer) error) error {
	logger := slog.New(slog.DiscardHandler)
	system := actorkit.NewSystem(logger)
	defer system.Shutdown()
	w := writers.Spawn(system, st, actorkit.BatchConfig{}, logger)
	return errors.Join(fn(snapshot.NewInstaller(st, w)), w.Stop())
}

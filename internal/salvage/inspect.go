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

// This file reads one store.

// format is the version of what Inspect and Make write to files.
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

// Inspection is what one store holds.
type Inspection struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Node    uint64 `json:"node"`
	// Starts are the numbers of the directory's last starts; Heard is the last start of
	// each other node that this one has heard of.
	Starts      []uint64          `json:"starts"`
	Heard       map[uint64]uint64 `json:"heard"`
	Fingerprint string            `json:"fingerprint"` // changes with every start of the node
	Recovery    join.Recovery     `json:"recovery"`    // the last one of this directory
	Replicas    []Replica         `json:"replicas"`
	Highest     uint64            `json:"highest_ts"`     // of all timestamps in the store
	Table       uint64            `json:"highest_table"`  // of all ids of tables
	Catalogue   uint64            `json:"catalogue"`      // the newest version of the catalogue
	Nodes       []Node            `json:"nodes"`          // of the cluster, as far as they are known
	Meta        *MetaTablet       `json:"meta,omitempty"` // nil: the store has no replica of it
}

// Replica is a replica that the store holds, or will hold once the log of another one is
// applied.
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
	Newest    uint64     `json:"newest_ts"` // of its rows
	// Stale: its log lacks what it has acknowledged, and it does not vote.
	Stale bool `json:"stale,omitempty"`
	// Frozen is the tablet that is about to take this one's rows, as of the last entry of the
	// log; 0: none.
	Frozen uint64 `json:"frozen,omitempty"`
	// Takings are the unapplied entries of the log that take the rows of another tablet.
	Takings []Taking `json:"takings,omitempty"`
	// Born is the tablet from which an entry that is not applied splits this one off; 0: the
	// store holds the replica.
	Born uint64 `json:"born,omitempty"`
}

// Taking is an entry in a replica's log by which its tablet takes the rows of a frozen one.
type Taking struct {
	Tablet uint64     `json:"tablet"` // the frozen one
	Epoch  uint64     `json:"epoch"`  // of the frozen one
	Before Descriptor `json:"before"` // the tablet that takes its rows, before the entry
	Index  uint64     `json:"index"`  // of the entry before it
	Term   uint64     `json:"term"`   // of the entry before it
}

// waits reports whether the replica waits for its first snapshot: it holds nothing.
func (r *Replica) waits() bool { return r.Stored.GetEpoch() == 0 }

// Node is a node of the cluster and where it was reached.
type Node struct {
	Node      uint64   `json:"node"`
	Addresses []string `json:"addresses"`
}

// MetaTablet is what the replica of the meta tablet holds, its whole log applied.
type MetaTablet struct {
	Tablets []Descriptor `json:"tablets"` // the tablet map
	Nodes   []Node       `json:"nodes"`   // the node table
}

// ErrNoNode means that the store is not that of a node of a cluster.
var ErrNoNode = errors.New("salvage: the directory belongs to no node of a cluster")

// Inspect reads what the store holds. It completes installations that a crash has interrupted,
// as the node's next start would, and changes nothing else. No other process may have the store
// open. Errors: ErrNoNode, join.ErrUnfinishedRecovery.
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

// replica adds the tablet's replica, and those that its log makes.
func (in *Inspection) replica(st *store.Store, id uint64) error {
	r := Replica{Tablet: id}
	rows := map[string][]byte{} // of the meta tablet, that entries which are not applied write
	out, err := tablet.Inspect(st, id, func(f *wire.Effect) {
		ts, _ := timestampOf(f.Key, f.Value)
		r.Newest = max(r.Newest, uint64(ts))
		if g, c, _, err := store.DecodeKey(f.Key); err == nil && g == mvcc.GroupRaw && id == cluster.MetaTablet {
			rows[c.Row], _ = store.DecodePlain(f.Value) // nil if the effect deletes the row
		}
	})
	if err != nil {
		return fmt.Errorf("salvage: %w", err)
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

// readMeta reads what the meta tablet says of nodes and tablets; later has the rows that
// are written after what the Snap shows.
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

// newest returns the highest timestamp of the tablet's rows, and at least the one given.
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

// timestampOf returns the highest timestamp in an entry of the state; 0 if it has none.
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

// fingerprint is a checksum over what every start of the node, and every entry in a log,
// changes.
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

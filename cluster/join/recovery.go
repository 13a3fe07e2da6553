package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// Reads and writes of `percolator recover` on a node's own records, while no process has the
// store open, and their use by the node afterwards (docs/adr/0055).

// recoveryRecord is the name of the record of the last recovery.
const recoveryRecord = "recovery"

// ErrUnfinishedRecovery means that `recover apply` was interrupted: the store has some of its
// changes. The same call completes it.
var ErrUnfinishedRecovery = errors.New("join: a recovery of this directory is not finished: " +
	"run `percolator recover apply` with the same plan again")

// Recovery is a store's record of the last recovery from the loss of a quorum.
type Recovery struct {
	Plan string    `json:"plan"` // plan id
	At   time.Time `json:"at"`   // creation time of the plan
	By   string    `json:"by"`   // operator that applied it
	// Applied is false while apply is in progress.
	Applied bool `json:"applied"`
	// Noted means that this node has sent the record to meta and has written it to the audit log.
	Noted bool `json:"noted,omitempty"`
	// Dead are the nodes that this recovery and earlier ones declared dead. They neither vote nor
	// return.
	Dead []uint64 `json:"dead"`
	// Highest is the highest timestamp found in any store.
	Highest uint64 `json:"highest"`
	// Tablets are the tablets whose groups were recreated.
	Tablets []uint64 `json:"tablets"`
}

// Message returns the recovery as meta stores it.
func (r *Recovery) Message() *pb.Recovery {
	return &pb.Recovery{
		Plan: r.Plan, By: r.By, UnixMs: r.At.UnixMilli(), Dead: r.Dead, HighestTs: r.Highest,
		Tablets: r.Tablets,
	}
}

// Stored is what a store records about its node.
type Stored struct {
	Identity
	// Starts are the numbers of the directory's last starts, oldest first.
	Starts []uint64
	// Heard is the last known start of each other node.
	Heard    map[uint64]uint64
	Nodes    []*pb.Node // as last received from meta
	Recovery Recovery
}

// ReadStored reads what the store records about its node, without starting an incarnation.
// It returns false if the node belongs to no cluster.
func ReadStored(st *store.Store) (Stored, bool, error) {
	s := &Self{st: st, contacts: &pb.JoinResponse{}, seen: map[uint64]seenStart{}}
	known, err := s.read()
	if err != nil || !known || s.record.Fresh() {
		return Stored{}, false, err
	}
	out := Stored{
		Identity: s.record.Identity, Starts: s.record.History, Heard: map[uint64]uint64{},
		Nodes: s.contacts.Nodes, Recovery: s.recovery,
	}
	for node, seen := range s.seen {
		out.Heard[node] = seen.Start
	}
	return out, true, nil
}

// PutRecovery adds the record of a recovery to the batch. It keeps the nodes that were declared
// dead before.
func PutRecovery(b *store.Batch, before, r Recovery) error {
	r.Dead = append(slices.Clone(r.Dead), before.Dead...)
	slices.Sort(r.Dead)
	r.Dead = slices.Compact(r.Dead)
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("join: encode the record of a recovery: %w", err)
	}
	b.PutRecord(recoveryRecord, data)
	return nil
}

// readRecovery reads the record of the last recovery. It is called before the Self is
// shared.
func (s *Self) readRecovery(snap *store.Snap) error {
	data, ok, err := snap.Record(recoveryRecord)
	if err == nil && ok {
		err = json.Unmarshal(data, &s.recovery)
	}
	return wrapf(err, "join: read the record of a recovery")
}

// Recovery returns the record of the last recovery; its Plan is empty if there was none.
func (s *Self) Recovery() Recovery { return s.recovery }

// RecoveryNoted durably records that meta contains the record of the last recovery. Recovery keeps
// its result until the next start.
func (s *Self) RecoveryNoted() error {
	r, b := s.recovery, &store.Batch{}
	r.Noted = true
	if err := PutRecovery(b, Recovery{}, r); err != nil {
		return err
	}
	return wrapf(s.st.StateWriter().Commit([]*store.Batch{b}), "join: note a recovery")
}

// declaredDead reports whether a recovery has declared the node dead.
func (s *Self) declaredDead(node uint64) bool { return slices.Contains(s.recovery.Dead, node) }

package join

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// The node's own record in its store. It is read once, when the store is opened; each change then
// writes a new record and only afterwards replaces the one in memory, under the mutex. Callers are
// the Membership service, on any goroutine, the starting node, and Upkeep; no write is in flight
// when a method has returned.

// Identity identifies a node. It is stored in the node's store next to the tablets' state.
type Identity struct {
	ClusterID string `json:"cluster_id"` // empty if the node belongs to no cluster yet
	NodeID    uint64 `json:"node_id"`
	// Incarnation increases with every start and identifies this process in locks (design section
	// 4, "Liveness").
	Incarnation uint64 `json:"incarnation"`
}

// Fresh reports whether the node belongs to no cluster yet.
func (i Identity) Fresh() bool { return i.ClusterID == "" }

// Names of the node's records in its store.
const (
	identityRecord = "identity"
	contactsRecord = "contacts"
	startsRecord   = "starts"
)

// selfRecord is the stored record of the node, as JSON.
type selfRecord struct {
	Identity
	// Waiting means that the node was started to join a cluster, or to found one together with
	// others. Another node may hold its promise or list it as a member: it must not found a
	// cluster alone.
	Waiting bool `json:"waiting,omitempty"`
	// Promised is the node that holds the promise to found the cluster, or 0. It is valid while
	// the node is fresh.
	Promised uint64 `json:"promised,omitempty"`
	// Attempt is the newest attempt for which that founder requested the promise.
	Attempt uint64 `json:"attempt,omitempty"`
	// Starts are the random numbers of this directory's starts, from the last one known to be
	// registered in meta to the current one. A directory without the one in meta is an old copy.
	Starts []uint64 `json:"starts,omitempty"`
	// History are the numbers of this directory's last starts, registered or not, including the
	// current one. Other nodes distinguish the directory from an old copy by them.
	History []uint64 `json:"history,omitempty"`
	// Outlive is an incarnation of this node that another directory was seen to have: the next one
	// must be later.
	Outlive uint64 `json:"outlive,omitempty"`
	// Started is the position of the Raft log at the first start that is not confirmed yet; 0 once
	// the last start is confirmed.
	Started uint64 `json:"started,omitempty"`
	// Raised is added to the position of the log: see Discard.
	Raised uint64 `json:"raised,omitempty"`
	// Discards means that the replicas of this directory have not been discarded yet (Discard).
	Discards bool `json:"discards,omitempty"`
	// Supports means that processes of this directory may have promised other nodes their support
	// (package liveness). Earlier builds drop it; none can join a cluster that has promises.
	Supports bool `json:"supports,omitempty"`
}

// maxStarts bounds Starts and History. The first of Starts, which meta knows, is kept, and the
// oldest after it are dropped; those most likely were never registered.
const maxStarts = 64

// Self is the node's own record in its store. Every change is durable before it returns. It is
// safe for concurrent use.
type Self struct {
	st *store.Store

	recovery Recovery // constant while the process runs

	mu       sync.Mutex
	record   selfRecord
	contacts *pb.JoinResponse // immutable
	seen     map[uint64]seenStart
	started  uint64               // as in the record, but kept after the start is confirmed
	reached  map[uint64]seenStart // positions as of the last noteReached

	raised atomic.Uint64 // as in the record, for Reached
}

// OpenSelf reads the node's record and starts its next incarnation, which is durable when it
// returns. In an empty store it generates a node id. It returns ErrUnfinishedRecovery after an
// interrupted `recover apply`.
func OpenSelf(st *store.Store) (*Self, error) {
	s := &Self{st: st, contacts: &pb.JoinResponse{}, seen: map[uint64]seenStart{}}
	known, err := s.read()
	if err != nil {
		return nil, err
	}
	if s.recovery.Plan != "" && !s.recovery.Applied {
		return nil, ErrUnfinishedRecovery
	}
	if !known {
		if s.record.NodeID, err = randomID(); err != nil {
			return nil, err
		}
	}
	start, err := randomID()
	if err != nil {
		return nil, err
	}
	next := s.record
	// Above the incarnation of any copy of this directory known to the others.
	next.Incarnation = max(next.Incarnation, next.Outlive) + 1
	next.Outlive = 0
	if len(next.History) == 0 { // the record is of a version without History
		next.History = next.Starts
	}
	next.History = append(slices.Clone(next.History[max(0, len(next.History)-maxStarts+1):]), start)
	s.raised.Store(next.Raised)
	next.Started = cmp.Or(next.Started, s.Reached())
	s.started = next.Started
	next.Starts = append(slices.Clone(next.Starts), start)
	if len(next.Starts) > maxStarts {
		next.Starts = slices.Delete(next.Starts, 1, 2)
	}
	return s, s.write(next, &store.Batch{})
}

// randomID returns a random odd number of 63 bits: never 0, which means none.
func randomID() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("join: generate an id: %w", err)
	}
	return binary.BigEndian.Uint64(b[:])>>1 | 1, nil
}

// read loads the record from the store. It returns false if the store has none.
func (s *Self) read() (known bool, err error) {
	snap := s.st.Snap()
	defer snap.Close()
	data, known, err := snap.Record(identityRecord)
	if err != nil || !known {
		return false, wrapf(err, "join: read the node's identity")
	}
	err = json.Unmarshal(data, &s.record)
	if err == nil && s.record.NodeID == 0 {
		err = errors.New("it has no node id")
	}
	if err != nil {
		return false, fmt.Errorf("join: the node's identity is damaged: %w", err)
	}
	data, ok, err := snap.Record(contactsRecord)
	if err == nil && ok {
		err = proto.Unmarshal(data, s.contacts)
	}
	if err != nil {
		return false, fmt.Errorf("join: read the node's contacts: %w", err)
	}
	return true, errors.Join(s.readSeen(snap), s.readRecovery(snap))
}

// wrapf adds text to an error; nil stays nil.
func wrapf(err error, text string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", text, err)
}

// write commits the record together with b and then replaces the one in memory. The caller holds
// mu, or has not shared the Self yet.
func (s *Self) write(next selfRecord, b *store.Batch) error {
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("join: encode the node's identity: %w", err)
	}
	b.PutRecord(identityRecord, data)
	if err := s.st.StateWriter().Commit([]*store.Batch{b}); err != nil {
		return fmt.Errorf("join: write the node's identity: %w", err)
	}
	s.record = next
	return nil
}

// change writes the record as fn changes it. The caller holds mu.
func (s *Self) change(fn func(next *selfRecord)) error {
	next := s.record
	fn(&next)
	return s.write(next, &store.Batch{})
}

// current returns the record in memory. Its slices must not be changed.
func (s *Self) current() selfRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// Identity returns the node's current identity.
func (s *Self) Identity() Identity { return s.current().Identity }

// maxOutlived bounds the incarnation to which another process can raise this node's, so that
// incarnations can always increase.
const maxOutlived = 1 << 48

// Outlive makes the incarnation of the next start greater than that of another process, which runs
// on a copy of this directory. Other nodes consider incarnations below the running one dead. It
// ignores incarnations above maxOutlived.
func (s *Self) Outlive(incarnation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if incarnation <= max(s.record.Incarnation, s.record.Outlive) || incarnation > maxOutlived {
		return nil
	}
	return s.change(func(next *selfRecord) { next.Outlive = incarnation })
}

// Supports reports whether a process of this directory may have promised other nodes its support.
func (s *Self) Supports() bool { return s.current().Supports }

// NoteSupport makes Supports true.
func (s *Self) NoteSupport() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.change(func(next *selfRecord) { next.Supports = true })
}

// Starts returns the start numbers with which this process registers. The slice must not be
// changed.
func (s *Self) Starts() []uint64 { return s.current().Starts }

// Contacts returns the nodes and the location of meta, as the last Join or Upkeep received them.
// The message must not be changed.
func (s *Self) Contacts() *pb.JoinResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contacts
}

// ErrWaiting reports that the directory was started to become part of a cluster with others, and
// is now started to found its own.
var ErrWaiting = errors.New("join: this directory is waiting to become part of a cluster")

// errNotFresh reports that the node already belongs to a cluster.
var errNotFresh = errors.New("join: the node belongs to a cluster already")

// Begin founds a cluster of this node alone, unless the node has waited for others (ErrWaiting).
// bootstrap adds the first tablets' state to the same atomic batch.
func (s *Self) Begin(bootstrap func(b *store.Batch, node uint64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Waiting {
		return fmt.Errorf("%w: give --join again, or found a new cluster in an empty directory",
			ErrWaiting)
	}
	return s.found(bootstrap)
}

// Found makes the node the founder of a cluster that others wait for. All of them have promised
// it; here only the own promise is checked.
func (s *Self) Found(bootstrap func(b *store.Batch, node uint64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Promised != s.record.NodeID {
		return errors.New("join: this node cannot found the cluster without its own promise")
	}
	return s.found(bootstrap)
}

// found makes the node a member of a new cluster. The caller holds mu.
func (s *Self) found(bootstrap func(b *store.Batch, node uint64)) error {
	if !s.record.Fresh() {
		return errNotFresh
	}
	b, next := &store.Batch{}, s.record
	next.settle()
	next.ClusterID = uuid.NewString()
	bootstrap(b, next.NodeID)
	return s.write(next, b)
}

// settle clears the fields that are meaningless for a node with a cluster: waiting, its promises,
// and the unconfirmed position.
func (r *selfRecord) settle() { r.Waiting, r.Promised, r.Attempt, r.Started = false, 0, 0, 0 }

// Wait durably records that the node waits for others, so that it never founds a cluster alone.
func (s *Self) Wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Waiting {
		return nil
	}
	return s.change(func(next *selfRecord) { next.Waiting = true })
}

// Promise promises founder that it may found the cluster, unless another node holds the promise,
// and returns the holder. The promise is durable when Promise returns.
func (s *Self) Promise(founder, attempt uint64) (holder uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.record.Promised
	switch {
	case !s.record.Fresh():
		return 0, errNotFresh
	case held != 0 && held != founder:
		return held, nil
	case held == founder && attempt <= s.record.Attempt:
		return founder, nil
	}
	return founder, s.change(func(next *selfRecord) {
		next.Promised, next.Attempt, next.Waiting = founder, attempt, true
	})
}

// Withdraw removes a promise at its founder's request, unless it was given for a later attempt.
// Only the founder may request that, because it may have founded the cluster.
func (s *Self) Withdraw(founder, attempt uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.record.Fresh() || s.record.Promised != founder || s.record.Attempt > attempt {
		return nil
	}
	return s.change(func(next *selfRecord) { next.Promised, next.Attempt = 0, 0 })
}

// Joined stores the response of the cluster. A fresh node becomes a member; for a returning node
// this start is now registered.
func (s *Self) Joined(r *pb.JoinResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ClusterId == "" || (!s.record.Fresh() && r.ClusterId != s.record.ClusterID) {
		return fmt.Errorf("%w: %q", ErrOtherCluster, r.ClusterId)
	}
	// Meta has recorded the current start, so earlier ones need not be proven any longer.
	last := len(s.record.Starts) - 1
	// Upkeep calls this repeatedly, usually without a change.
	if !s.record.Fresh() && last == 0 && proto.Equal(r, s.contacts) {
		return nil
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return fmt.Errorf("join: encode the node's contacts: %w", err)
	}
	b, next := &store.Batch{}, s.record
	next.Starts, next.ClusterID = s.record.Starts[last:], r.ClusterId
	if s.record.Fresh() {
		next.settle()
	}
	b.PutRecord(contactsRecord, data)
	seen, err := s.learnSeen(b, r.Nodes)
	if err != nil {
		return err
	}
	if err := s.write(next, b); err != nil {
		return err
	}
	s.contacts, s.seen = proto.CloneOf(r), seen
	return nil
}

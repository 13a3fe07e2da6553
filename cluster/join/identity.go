package join

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// Identity is who a node is. It lives in the node's store, beside the tablets' state.
type Identity struct {
	ClusterID string `json:"cluster_id"` // empty: the node belongs to no cluster yet
	NodeID    uint64 `json:"node_id"`
	// grows with every start; names this process in locks (invariant 7 of design section
	// 4)
	Incarnation uint64 `json:"incarnation"`
}

// Fresh reports that the node belongs to no cluster yet.
func (i Identity) Fresh() bool { return i.ClusterID == "" }

// Names of the node's records in its store.
const (
	identityRecord = "identity"
	contactsRecord = "contacts"
	startsRecord   = "starts"
)

// selfRecord is what is stored of a node.
type selfRecord struct {
	Identity
	// Waiting: the node was started to join a cluster, or to found one together with
	// others. Another node may hold its promise, or have its name already: it must not
	// begin a cluster by itself.
	Waiting bool `json:"waiting,omitempty"`
	// Promised is the node that may found the cluster; 0: none has the promise. It counts
	// as long as the node is fresh.
	Promised uint64 `json:"promised,omitempty"`
	// Attempt is that founder's newest attempt for which it was asked.
	Attempt uint64 `json:"attempt,omitempty"`
	// Starts are random numbers of this directory's starts: first the last that is known
	// to be registered in meta, last the present one. A directory that does not know the
	// one in meta is an old copy (invariant 7).
	Starts []uint64 `json:"starts,omitempty"`
	// History are the numbers of this directory's last starts, registered or not, the
	// present one at the end: by them other nodes tell the directory from an old copy of
	// it.
	History []uint64 `json:"history,omitempty"`
	// Outlive is an incarnation that was seen of this node and was none of this
	// directory's: the next is a later one.
	Outlive uint64 `json:"outlive,omitempty"`
}

// maxStarts bounds them. Beyond it those after the first are forgotten, of starts that
// came to nothing most likely.
const maxStarts = 64

// Self is the node's own record in its store. Every change is durable before it returns.
// It may be used concurrently.
type Self struct {
	st *store.Store

	mu       sync.Mutex
	record   selfRecord
	contacts *pb.JoinResponse // immutable
	seen     map[uint64]seenStart
}

// OpenSelf reads the node's record and begins its next incarnation. In an empty store it
// makes up a node id.
func OpenSelf(st *store.Store) (*Self, error) {
	s := &Self{st: st, contacts: &pb.JoinResponse{}, seen: map[uint64]seenStart{}}
	known, err := s.read()
	if err != nil {
		return nil, err
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
	next.Incarnation = max(next.Incarnation, next.Outlive) + 1
	next.Outlive = 0
	if len(next.History) == 0 { // of a version that did not keep it
		next.History = next.Starts
	}
	next.History = append(slices.Clone(next.History[max(0, len(next.History)-maxStarts+1):]), start)
	next.Starts = append(slices.Clone(next.Starts), start)
	if len(next.Starts) > maxStarts {
		next.Starts = slices.Delete(next.Starts, 1, 2)
	}
	return s, s.write(next, &store.Batch{})
}

// randomID is a number that is not 0.
func randomID() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("join: no randomness: %w", err)
	}
	return binary.BigEndian.Uint64(b[:])>>1 | 1, nil
}

// read takes what the store has; false: it is empty.
func (s *Self) read() (known bool, err error) {
	snap := s.st.Snap()
	defer snap.Close()
	data, known, err := snap.Record(identityRecord)
	if err != nil || !known {
		return false, wrapf(err, "join: read the node's identity")
	}
	if err := json.Unmarshal(data, &s.record); err != nil || s.record.NodeID == 0 {
		return false, fmt.Errorf("join: the node's identity is damaged: %w", err)
	}
	data, ok, err := snap.Record(contactsRecord)
	if err == nil && ok {
		err = proto.Unmarshal(data, s.contacts)
	}
	if err != nil {
		return false, fmt.Errorf("join: read the node's contacts: %w", err)
	}
	return true, s.readSeen(snap)
}

func wrapf(err error, text string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", text, err)
}

// write stores the record in the batch. Called with mu held, or before the Self is shared.
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

// Identity is who the node is now.
func (s *Self) Identity() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Identity
}

// maxOutlived bounds what another process can make of this node's incarnations: they must
// be able to grow for good.
const maxOutlived = 1 << 48

// Outlive has the next start be a later incarnation than one that another process, on a
// copy of this directory, has run as: the others take any earlier one for dead as long as
// they live.
func (s *Self) Outlive(incarnation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if incarnation <= max(s.record.Incarnation, s.record.Outlive) || incarnation > maxOutlived {
		return nil
	}
	next := s.record
	next.Outlive = incarnation
	return s.write(next, &store.Batch{})
}

// Starts are the numbers by which this process, and the directory that it runs on, is
// registered. Not to be changed.
func (s *Self) Starts() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Starts
}

// Contacts are the nodes that it knew last, and where meta was: the last answer to a
// Join. Not to be changed.
func (s *Self) Contacts() *pb.JoinResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contacts
}

// ErrWaiting: the directory was started to become part of a cluster with others, and is
// now started to be one of its own.
var ErrWaiting = errors.New("join: this directory waits to become part of a cluster")

// errNotFresh: the node belongs to a cluster already.
var errNotFresh = errors.New("join: the node belongs to a cluster already")

// Begin makes the node a cluster of its own, unless it has waited for others: bootstrap
// adds the first tablets' state to the same atomic batch.
func (s *Self) Begin(bootstrap func(b *store.Batch, node uint64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Waiting {
		return fmt.Errorf("%w: give --join again, or begin a new cluster in an empty directory",
			ErrWaiting)
	}
	return s.found(bootstrap)
}

// Found makes the node a cluster that others wait for: all of them have promised it.
func (s *Self) Found(bootstrap func(b *store.Batch, node uint64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Promised != s.record.NodeID {
		return errors.New("join: the node has promised to let another one found the cluster")
	}
	return s.found(bootstrap)
}

func (s *Self) found(bootstrap func(b *store.Batch, node uint64)) error {
	if !s.record.Fresh() {
		return errNotFresh
	}
	b, next := &store.Batch{}, selfRecord{
		Identity: s.record.Identity, Starts: s.record.Starts, History: s.record.History,
		Outlive: s.record.Outlive,
	}
	next.ClusterID = uuid.NewString()
	bootstrap(b, next.NodeID)
	return s.write(next, b)
}

// Wait notes that the node waits for others.
func (s *Self) Wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Waiting {
		return nil
	}
	next := s.record
	next.Waiting = true
	return s.write(next, &store.Batch{})
}

// Promise lets the node found the cluster in this attempt of its, unless another one has
// the promise: the answer is who has it.
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
	next := s.record
	next.Promised, next.Attempt, next.Waiting = founder, attempt, true
	return founder, s.write(next, &store.Batch{})
}

// Withdraw takes back a promise that its founder gives up, if it was not given for a
// later attempt. Nobody else may ask for that: the founder may have founded the cluster.
func (s *Self) Withdraw(founder, attempt uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.record.Fresh() || s.record.Promised != founder || s.record.Attempt > attempt {
		return nil
	}
	next := s.record
	next.Promised, next.Attempt = 0, 0
	return s.write(next, &store.Batch{})
}

// Joined makes the node one of the cluster that has taken it in, or notes what that
// cluster said to a node that came back. This start is registered then.
func (s *Self) Joined(r *pb.JoinResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ClusterId == "" || (!s.record.Fresh() && r.ClusterId != s.record.ClusterID) {
		return fmt.Errorf("%w: %q", ErrOtherCluster, r.ClusterId)
	}
	last := len(s.record.Starts) - 1
	if !s.record.Fresh() && last == 0 && proto.Equal(r, s.contacts) {
		return nil
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return fmt.Errorf("join: encode the node's contacts: %w", err)
	}
	b, next := &store.Batch{}, selfRecord{
		Identity: s.record.Identity, Starts: s.record.Starts[last:], History: s.record.History,
		Outlive: s.record.Outlive,
	}
	next.ClusterID = r.ClusterId
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

package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// Identity is who a node is. It lives in the node's store, beside the tablets' state.
type Identity struct {
	ClusterID   string `json:"cluster_id"`
	NodeID      uint64 `json:"node_id"`
	Incarnation uint64 `json:"incarnation"` // grows with every start; names this process in locks (invariant 7 of design section 4)
}

// identityKey is a key of the store that no codec makes.
var identityKey = []byte("node identity")

// OpenIdentity reads the node's identity and begins its next incarnation. In a fresh store it makes one, and begins a
// cluster: bootstrap adds the first tablets' state to the same atomic batch.
func OpenIdentity(st *store.Store, bootstrap func(b *store.Batch, node uint64)) (Identity, error) {
	snap := st.Snap()
	data, ok, err := snap.Get(identityKey)
	snap.Close()
	if err != nil {
		return Identity{}, fmt.Errorf("cluster: read the node's identity: %w", err)
	}
	id, batch := Identity{}, &store.Batch{}
	if ok {
		if err := json.Unmarshal(data, &id); err != nil {
			return Identity{}, fmt.Errorf("cluster: the node's identity is damaged: %w", err)
		}
	} else {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return Identity{}, fmt.Errorf("cluster: no randomness: %w", err)
		}
		id = Identity{ClusterID: uuid.NewString(), NodeID: binary.BigEndian.Uint64(b[:])>>1 | 1}
		bootstrap(batch, id.NodeID)
	}
	id.Incarnation++
	data, err = json.Marshal(id)
	if err != nil {
		return Identity{}, fmt.Errorf("cluster: encode the node's identity: %w", err)
	}
	batch.Put(identityKey, data)
	if err := st.StateWriter().Commit([]*store.Batch{batch}); err != nil {
		return Identity{}, fmt.Errorf("cluster: write the node's identity: %w", err)
	}
	return id, nil
}

// FirstTablets are the tablets that a new cluster begins with, on its first node: meta, and one for all user tables.
func FirstTablets(node uint64) []*pb.TabletDescriptor {
	replicas := func() []*pb.Replica { return []*pb.Replica{{ReplicaId: 1, NodeId: node}} }
	users := uint32(mvcc.FirstUserTable)
	return []*pb.TabletDescriptor{
		{TabletId: MetaTablet, Epoch: 1, EndTable: users, Replicas: replicas(), NextReplicaId: 2},
		{TabletId: firstUserTablet, Epoch: 1, StartTable: users, EndUnbounded: true, Replicas: replicas(), NextReplicaId: 2},
	}
}

// The ids of the first tablets.
const (
	MetaTablet      = 1
	firstUserTablet = 2
	firstFreeTablet = 3
)

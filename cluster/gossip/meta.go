package gossip

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Encoding of members as memberlist's metadata. Stateless.

// ErrTooLong reports that the node's addresses and zone do not fit into its metadata.
var ErrTooLong = errors.New("gossip: addresses and zone are too long")

// clusterHash returns an 8-byte hash of the cluster's id.
func clusterHash(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:])
}

// encodeMeta encodes a member as metadata.
func encodeMeta(hash uint64, m cluster.Member) ([]byte, error) {
	return proto.Marshal(&wire.GossipMeta{
		Cluster: hash, NodeId: m.NodeID, Incarnation: m.Incarnation,
		Listen: m.Listen, Peer: m.Peer, Gossip: m.Gossip, Http: m.HTTP, Zone: m.Zone,
		Draining: m.Draining, LeadsMeta: m.LeadsMeta, Replicas: m.Load.Replicas,
		Leaders:   m.Load.Leaders,
		SizeBytes: m.Load.SizeBytes, Load: m.Load.Load, DiskFree: m.Load.DiskFree,
		Oldest: uint32(m.Versions.Oldest), Newest: uint32(m.Versions.Newest),
	})
}

// decodeMeta decodes what encodeMeta returned. A member without an id or an incarnation is
// an error.
func decodeMeta(b []byte) (hash uint64, m cluster.Member, err error) {
	g := &wire.GossipMeta{}
	if err := proto.Unmarshal(b, g); err != nil {
		return 0, m, fmt.Errorf("gossip: decode a member's metadata: %w", err)
	}
	// An empty message, or one of another program, may decode without an error.
	if g.NodeId == 0 || g.Incarnation == 0 {
		return 0, m, errors.New("gossip: a member's metadata names no node")
	}
	return g.Cluster, cluster.Member{
		NodeID: g.NodeId, Incarnation: g.Incarnation, Listen: g.Listen, Peer: g.Peer,
		Gossip: g.Gossip, HTTP: g.Http, Zone: g.Zone,
		Draining: g.Draining, LeadsMeta: g.LeadsMeta, Load: cluster.MemberLoad{
			Replicas: g.Replicas, Leaders: g.Leaders, SizeBytes: g.SizeBytes, Load: g.Load,
			DiskFree: g.DiskFree,
		},
		Versions: version.RangeOf(g.Oldest, g.Newest),
	}, nil
}

// fits returns ErrTooLong if the member, with the largest possible figures, exceeds
// memberlist's limit.
func fits(m cluster.Member) error {
	m.Draining, m.LeadsMeta, m.Incarnation = true, math.MaxUint64, math.MaxUint64
	m.Versions = version.Range{Oldest: math.MaxUint32, Newest: math.MaxUint32}
	m.Load = cluster.MemberLoad{
		Replicas: math.MaxUint32, Leaders: math.MaxUint32, SizeBytes: math.MaxUint64,
		Load: math.MaxUint64, DiskFree: math.MaxUint64,
	}
	b, err := encodeMeta(math.MaxUint64, m)
	if err != nil {
		return err
	}
	if over := len(b) - memberlist.MetaMaxSize; over > 0 {
		return fmt.Errorf("%w by %d bytes; a node's metadata may have %d bytes", ErrTooLong, over,
			memberlist.MetaMaxSize)
	}
	return nil
}

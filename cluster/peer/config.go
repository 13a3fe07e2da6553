package peer

import (
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/version"
)

// This file holds the bounds and defaults of Peers. A Config is copied by New and not
// changed afterwards.

// MaxMessage is the most bytes that one request, answer or Raft message may hold: the
// largest operation (design section 2) with room to spare, and well below what the
// remoting receives in one piece.
const MaxMessage = 24 << 20

// Self identifies this node to others.
type Self struct {
	ClusterID           string
	NodeID, Incarnation uint64
}

// Config tunes Peers. Zero fields take the defaults. All bounds are per other node.
type Config struct {
	// System runs the outboxes. If nil, Peers makes a system of its own, which costs some
	// MiB.
	System *actor.ActorSystem
	// BatchMessages and BatchBytes close a batch; defaults, which are also the most:
	// 1,000 and 16 MiB.
	BatchMessages, BatchBytes int
	// InFlight and InFlightBytes bound the requests without an answer; defaults 16,384
	// and 64 MiB. Those beyond it fail.
	InFlight, InFlightBytes int
	// RaftLimit and RaftBytes bound the Raft messages that wait; defaults 16,384 and 64
	// MiB. Those beyond it are dropped.
	RaftLimit, RaftBytes int
	// Incoming bounds the requests that are handled for one node; default 16,384. Those
	// beyond it, and beyond incomingBytes, are answered with CODE_OVERLOADED.
	Incoming int
	// AnswerBytes bounds the answers that wait; default 128 MiB. An answer beyond it is
	// replaced by CODE_UNKNOWN, as is one of more than 64 KiB beyond half of it.
	AnswerBytes int
	// Gate says which versions the cluster has agreed on: batches of builds that do not know
	// them are dropped. Nil: none are.
	Gate *version.Gate
	// Reached returns how far this node's Raft log has come, durably, for the other nodes to
	// remember (join.Self.Reached). Nil: they are not told.
	Reached func() uint64
	Logger  *slog.Logger
}

// The largest batch.
const (
	maxBatchMessages = 1000
	maxBatchBytes    = 16 << 20
	// defaultTimeout is how long a request without a deadline waits, at the asking and at
	// the answering node.
	defaultTimeout = 30 * time.Second
	// incomingBytes bounds the requests that are handled for one node.
	incomingBytes = 128 << 20
	// maxTimeout limits the timeout that another node may give a request.
	maxTimeout = 10 * time.Minute
	// largeAnswer is the size in bytes above which an answer counts as large. Only reads
	// have large answers.
	largeAnswer = 64 << 10
	// maxNodes is the most nodes that have an outbox.
	maxNodes = 4096
	// maxInLink is the most batches that the link has at once: one that it sends, and one
	// that is ready to follow.
	maxInLink = 2
)

func (c Config) withDefaults() Config {
	positive := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	positive(&c.BatchMessages, maxBatchMessages)
	positive(&c.BatchBytes, maxBatchBytes)
	c.BatchMessages, c.BatchBytes = min(c.BatchMessages, maxBatchMessages),
		min(c.BatchBytes, maxBatchBytes)
	positive(&c.InFlight, 16<<10)
	positive(&c.InFlightBytes, 64<<20)
	positive(&c.RaftLimit, 16<<10)
	positive(&c.RaftBytes, 64<<20)
	positive(&c.Incoming, 16<<10)
	positive(&c.AnswerBytes, 128<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

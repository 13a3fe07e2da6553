package peer

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/version"
)

// Bounds and defaults of Peers. New copies the Config; it does not change afterwards.

// MaxMessage limits one request, answer or Raft message, in bytes: above the largest
// operation (design section 2) and well below the largest message that cluster/remoting
// receives.
const MaxMessage = 24 << 20

// Self identifies this node to others.
type Self struct {
	ClusterID           string
	NodeID, Incarnation uint64
}

// Config tunes Peers. Zero fields get the defaults. All bounds are per remote node.
type Config struct {
	// System runs the outboxes. Nil means Peers creates its own system, of a few MiB.
	System *actor.ActorSystem
	// BatchMessages and BatchBytes limit a batch; defaults and maxima 1,000 and 16 MiB. A message
	// larger than BatchBytes has a batch of its own.
	BatchMessages, BatchBytes int
	// InFlight and InFlightBytes bound unanswered requests; defaults 16,384 and 64 MiB.
	// Requests beyond them fail.
	InFlight, InFlightBytes int
	// RaftLimit and RaftBytes bound queued Raft messages; defaults 16,384 and 64 MiB.
	// Messages beyond them are dropped.
	RaftLimit, RaftBytes int
	// Incoming bounds the requests being handled for one node; default 16,384. Requests
	// beyond it, or beyond incomingBytes, are answered with CODE_OVERLOADED.
	Incoming int
	// AnswerBytes bounds queued answers; default 128 MiB. An answer that exceeds the bound together
	// with the queued ones is replaced by CODE_UNKNOWN. For an answer of more than 64 KiB half the
	// bound applies.
	AnswerBytes int
	// Gate holds the versions that the cluster has agreed on: batches of builds that do not
	// support them are dropped. Nil means no batch is dropped for its version.
	Gate *version.Gate
	// Reached returns the durable position of this node's Raft log, which each batch carries for
	// the other nodes to remember (join.Self.Reached). Nil means batches carry none.
	Reached func() uint64
	Logger  *slog.Logger
}

// Bounds that Config cannot change.
const (
	// The maxima of BatchMessages and BatchBytes.
	maxBatchMessages = 1000
	maxBatchBytes    = 16 << 20
	// defaultTimeout applies to a request without a deadline, at both nodes.
	defaultTimeout = 30 * time.Second
	// incomingBytes bounds the bytes of the requests being handled for one node.
	incomingBytes = 128 << 20
	// maxTimeout limits the timeout of another node's request.
	maxTimeout = 10 * time.Minute
	// largeAnswer is the size in bytes above which an answer counts as large. Only reads
	// have large answers.
	largeAnswer = 64 << 10
	// maxNodes limits the nodes with an outbox.
	maxNodes = 4096
	// maxInLink limits the batches in the link: one being sent and one ready to follow.
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
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

package peer

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Batching. A sender is an actor: its fields belong to the goroutine that runs its mailbox,
// one message at a time. The link holds at most maxInLink batches and reports the outcome of
// each. All other messages wait in the sender's queues and its mailbox, within the outbox's
// bounds.

// sender is the actor that collects the messages in its mailbox into batches for one node.
type sender struct {
	box    *outbox
	batch  *actorkit.Batcher[*outgoing]
	raft   []*outgoing // sent before the others
	others []*outgoing
	inLink int // batches whose outcome the link has not reported
}

// batchDone reports to the actor that the link has sent or dropped a batch.
type batchDone struct{}

func newSender(box *outbox) *sender {
	cfg := box.peers.cfg
	return &sender{box: box, batch: actorkit.NewBatcher[*outgoing](actorkit.BatchConfig{
		MaxMessages: cfg.BatchMessages, MaxBytes: cfg.BatchBytes,
	})}
}

// Receive implements actor.Actor.
func (s *sender) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *outgoing:
		if full := s.batch.Add(c, m, m.bytes); full {
			s.send()
		}
	case *actorkit.Flush:
		if s.batch.Due(m) {
			s.send()
		}
	case batchDone:
		s.inLink--
		s.send()
	}
}

// send passes batches to the link until no message is left or the link is full.
func (s *sender) send() {
	if s.inLink >= maxInLink {
		return
	}
	items := s.batch.Take()
	for _, o := range items {
		if o.raft != nil {
			s.raft = append(s.raft, o)
		} else {
			s.others = append(s.others, o)
		}
	}
	s.batch.GiveBack(items)
	for s.inLink < maxInLink && len(s.raft)+len(s.others) > 0 {
		b, requests := s.next()
		// All requests of the batch may have been settled by now.
		if len(b.Requests)+len(b.Responses)+len(b.Raft) > 0 {
			s.hand(b, requests)
		}
	}
}

// next removes the next batch from the queues, Raft messages first, and returns it with its
// requests. The batch is empty if all queued requests have been settled.
func (s *sender) next() (*wire.PeerBatch, []*waiting) {
	p := s.box.peers
	b := &wire.PeerBatch{
		ClusterId: p.self.ClusterID, FromNode: p.self.NodeID, FromIncarnation: p.self.Incarnation,
		ToNode: s.box.node, Version: p.version(),
	}
	if p.cfg.Reached != nil {
		b.LogReached = p.cfg.Reached() // covers the writes that the messages acknowledge
	}
	var requests []*waiting
	now, bytes, count := time.Now(), 0, 0
	take := func(queue []*outgoing) []*outgoing {
		for len(queue) > 0 && count < p.cfg.BatchMessages {
			o := queue[0]
			// A message larger than a batch gets a batch of its own.
			if count > 0 && bytes+o.bytes > p.cfg.BatchBytes {
				break
			}
			queue[0], queue = nil, queue[1:]
			if s.put(b, o, now) {
				count++
				bytes += o.bytes
				if o.request != nil {
					requests = append(requests, o.request)
				}
			}
		}
		if len(queue) == 0 {
			return nil // frees the array, which may have grown in a burst
		}
		return queue
	}
	s.raft = take(s.raft)
	s.others = take(s.others)
	return b, requests
}

// put adds a message to the batch. It returns false for a request that has been settled.
func (s *sender) put(b *wire.PeerBatch, o *outgoing, now time.Time) bool {
	switch {
	case o.raft != nil:
		s.box.raft.Add(-1)
		s.box.raftBytes.Add(-int64(o.bytes))
		b.Raft = append(b.Raft, o.raft)
	case o.answer != nil:
		s.box.answerBytes.Add(-int64(o.bytes))
		b.Responses = append(b.Responses, o.answer)
	default:
		if !o.request.advance(queued, batched) {
			return false
		}
		b.Requests = append(b.Requests, o.request.message(now))
	}
	return true
}

// hand passes a batch to the link and settles or advances its requests by the outcome.
func (s *sender) hand(b *wire.PeerBatch, requests []*waiting) {
	p := s.box.peers
	p.counts.batches.Add(1)
	p.counts.messages.Add(uint64(len(b.Requests) + len(b.Responses) + len(b.Raft)))
	outcome := func(err error) {
		for _, w := range requests {
			if err != nil {
				w.settle(nil, fmt.Errorf("%w: %w", txn.ErrNotSent, err))
			} else {
				w.advance(batched, sent)
			}
		}
		if err != nil {
			p.counts.unsent.Add(1)
		}
	}
	s.inLink++
	err := p.link.Send(s.box.node, b, func(err error) {
		outcome(err)
		if !s.box.stopped.Load() {
			p.system.Root.Send(s.box.pid, batchDone{})
		}
	})
	if err != nil {
		s.inLink--
		outcome(err)
	}
}

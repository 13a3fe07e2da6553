package liveness

import (
	"context"
	"log/slog"
	"time"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file sends the requests, on the goroutine of Run. Their answers arrive on any goroutine. A
// request expires after the duration of its promise, since a later answer would be useless.

// Network sends requests to other nodes. *cluster.PeerNodes implements it.
type Network interface {
	// Tell sends a request and calls then once, on any goroutine.
	Tell(node uint64, deadline time.Time, req *wire.PeerRequest, then func(*wire.PeerResponse, error))
}

// Run asks other nodes for support until ctx ends. It calls note, which durably records that this
// node may have given promises, before this node gives its first promise, unless Config.Promised is
// set. While note fails, the node gives none.
func (n *Node) Run(ctx context.Context, network Network, note func() error, logger *slog.Logger) {
	t := time.NewTicker(Period)
	defer t.Stop()
	for {
		asks := n.ask(network)
		if err := n.Durable(note); err != nil {
			logger.Warn("liveness: cannot record that this node gives promises; it gives none", "error", err)
		}
		if !asks {
			t.Stop() // an idle node would otherwise wake up five times a second
			select {
			case <-ctx.Done():
				return
			case <-n.wake:
			}
			t.Reset(Period)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-t.C:
		}
	}
}

// ask sends one request to each node whose support is needed, and reports whether there are any.
func (n *Node) ask(network Network) bool {
	nodes, sent := n.Asked()
	for _, node := range nodes {
		req := &wire.PeerRequest{Body: &wire.PeerRequest_Support{
			Support: &wire.SupportRequest{Incarnation: n.cfg.Incarnation},
		}}
		network.Tell(node, time.Now().Add(Duration), req, func(r *wire.PeerResponse, err error) {
			if s := r.GetSupport(); err == nil && s != nil {
				n.Answered(node, sent, s.GetEpoch(), time.Duration(s.GetPromisedUs())*time.Microsecond)
				n.compare(node, sent, s)
			}
		})
	}
	return len(nodes) > 0
}

// Answer answers another node's request. It does not block.
func (n *Node) Answer(node uint64, req *wire.SupportRequest) *wire.Support {
	epoch, lasts := n.Promise(node, req.GetIncarnation())
	return &wire.Support{
		Epoch: epoch, PromisedUs: uint64(lasts.Microseconds()), Incarnation: n.cfg.Incarnation,
		ClockUs: uint64(n.cfg.Clock().Microseconds()),
	}
}

// Durable calls note once this node has been asked for its first promise; note durably records that
// the node may have given promises. After an error, the next call that follows a request retries.
func (n *Node) Durable(note func() error) error {
	n.mu.Lock()
	due := n.asked && !n.durable
	n.asked = false
	n.mu.Unlock()
	if !due {
		return nil
	}
	if err := note(); err != nil {
		return err
	}
	n.mu.Lock()
	n.durable = true
	n.mu.Unlock()
	return nil
}

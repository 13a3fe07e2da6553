// Package feednats publishes the changes of tables to a stream of NATS JetStream, each exactly once.
//
// A change is published as a message on Config.Subject with the Change in JSON, in the order of the
// commits of each row; resolved timestamps go to Config.Subject + ".resolved". The position is in the
// stream itself: after a restart Publish reads the last resolved message, notes what has been
// published after it, and leaves that out. So a change is in the stream once, whenever Publish is
// interrupted; the stream's own window for duplicates does not matter. One process at a time may
// publish: it states the sequence that it expects, so that of two the one that publishes later
// fails.
package feednats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	percolator "github.com/percolator-go/percolator"
)

// Config configures Publish.
type Config struct {
	// Stream is the name of an existing stream whose subjects include Subject and Subject.resolved.
	// Nothing else may publish to it.
	Stream  string
	Subject string
	// Subscription, if not empty, is the name of a subscription that holds history while Publish does
	// not run. The stream alone determines where it continues.
	Subscription string
	// ResolveEvery is the time between two resolved messages; default 1 s.
	ResolveEvery time.Duration
}

// published identifies a change in the stream.
type published struct {
	key percolator.CellKey
	at  percolator.Timestamp
}

// publisher appends to the stream.
type publisher struct {
	cfg      Config
	stream   jetstream.JetStream
	last     uint64                 // sequence of the last message
	position percolator.Timestamp   // the last resolved message; 0: none
	done     map[published]struct{} // changes published after position by an earlier run
}

// Publish publishes the changes of the rows until ctx ends, and returns ctx's error then. With an
// empty stream it begins with all present cells. It returns percolator.ErrSnapshotTooOld if the
// changes after the last resolved message are no longer in the history.
func Publish(ctx context.Context, db *percolator.DB, js jetstream.JetStream, cfg Config,
	rows ...percolator.RowRange) error {
	if cfg.ResolveEvery <= 0 {
		cfg.ResolveEvery = time.Second
	}
	p := &publisher{cfg: cfg, stream: js, done: map[published]struct{}{}}
	if err := p.resume(ctx); err != nil {
		return err
	}
	var sub *percolator.Subscription
	if cfg.Subscription != "" {
		var err error
		if sub, err = db.Subscribe(ctx, cfg.Subscription); err != nil {
			return err
		}
	}
	var resolved time.Time
	for change, err := range db.Changes(ctx, p.position, rows...) {
		switch {
		case err != nil:
			return err
		case change.Resolved == 0:
			if _, again := p.done[published{change.CellKey, change.CommitTS}]; again {
				continue
			}
			if err := p.send(ctx, cfg.Subject, change); err != nil {
				return err
			}
			continue
		case p.position != 0 && time.Since(resolved) < cfg.ResolveEvery:
			continue
		}
		if err := p.send(ctx, cfg.Subject+".resolved", change); err != nil {
			return err
		}
		p.position, resolved = change.Resolved, time.Now()
		clear(p.done) // all changes of the earlier run precede this resolved message
		if sub != nil {
			if err := sub.Advance(ctx, change.Resolved); err != nil {
				return err
			}
		}
	}
	return nil
}

// resume reads the position from the stream, and the changes after it.
func (p *publisher) resume(ctx context.Context) error {
	stream, err := p.stream.Stream(ctx, p.cfg.Stream)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return err
	}
	p.last = info.State.LastSeq
	from := info.State.FirstSeq
	marker, err := stream.GetLastMsgForSubject(ctx, p.cfg.Subject+".resolved")
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
	case err != nil:
		return err
	default:
		c, err := changeOf(marker)
		if err != nil {
			return err
		}
		p.position, from = c.Resolved, marker.Sequence+1
	}
	for seq := max(from, 1); seq <= p.last; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) { // deleted by the stream's limits
			continue
		}
		if err != nil {
			return err
		}
		c, err := changeOf(m)
		if err != nil {
			return err
		}
		// An interrupted initial state is read again, at a later timestamp: what both have in common is
		// left out.
		p.done[published{c.CellKey, c.CommitTS}] = struct{}{}
	}
	return nil
}

func changeOf(m *jetstream.RawStreamMsg) (c percolator.Change, err error) {
	if err := json.Unmarshal(m.Data, &c); err != nil {
		return c, fmt.Errorf("feednats: message %d of the stream is not a change: %w", m.Sequence, err)
	}
	return c, nil
}

// send publishes one element behind the last one. A publish whose answer is lost is not repeated: the
// next run finds out whether it has arrived.
func (p *publisher) send(ctx context.Context, subject string, c percolator.Change) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	ack, err := p.stream.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data},
		jetstream.WithExpectLastSequence(p.last))
	if err != nil {
		return fmt.Errorf("feednats: publish: %w", err)
	}
	p.last = ack.Sequence
	return nil
}

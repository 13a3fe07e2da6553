// Package feedkafka publishes the changes of tables to a topic of Kafka, exactly once for consumers
// that read committed records only.
//
// A record has the row as its key, so that the changes of a row are in one partition, in the order of
// their commits, and the percolator.Change in JSON as its value. The records up to a resolved
// timestamp and the position, a record of another topic, are one transaction of Kafka. After a
// restart Publish continues after the last committed position; what was not committed, consumers
// never see. A second publisher of the same name takes over: Kafka fences the first one.
package feedkafka

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	percolator "github.com/percolator-go/percolator"
)

// Config configures Publish.
type Config struct {
	Brokers []string
	// Options are further options of the client, such as its TLS configuration.
	Options []kgo.Opt
	Topic   string
	// Positions is the topic of the positions, with one partition; compaction may be on.
	Positions string
	// Name identifies the publisher: it is the key of its position, and its transactional id.
	Name string
	// Subscription, if not empty, is the name of a subscription that holds history while Publish does
	// not run. The topic of positions alone determines where it continues.
	Subscription string
	// CommitEvery is the time between two transactions; default 1 s. The initial state is one
	// transaction, for which Kafka must allow TransactionTimeout; default 10 min.
	CommitEvery, TransactionTimeout time.Duration
}

// Publish publishes the changes of the rows until ctx ends, and returns ctx's error then. Without a
// position it begins with all present cells. It returns percolator.ErrSnapshotTooOld if the changes
// after the position are no longer in the history. After any error it may be called again.
func Publish(ctx context.Context, db *percolator.DB, cfg Config, rows ...percolator.RowRange) error {
	if cfg.CommitEvery <= 0 {
		cfg.CommitEvery = time.Second
	}
	if cfg.TransactionTimeout <= 0 {
		cfg.TransactionTimeout = 10 * time.Minute
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...), kgo.TransactionalID(cfg.Name), kgo.DefaultProduceTopic(cfg.Topic),
		kgo.TransactionTimeout(cfg.TransactionTimeout), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	}, cfg.Options...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	// First: from here on an earlier publisher commits nothing any more.
	if _, _, err := client.ProducerID(ctx); err != nil {
		return fmt.Errorf("feedkafka: fence earlier publishers: %w", err)
	}
	position, err := storedPosition(ctx, cfg)
	if err != nil {
		return err
	}
	var sub *percolator.Subscription
	if cfg.Subscription != "" {
		if sub, err = db.Subscribe(ctx, cfg.Subscription); err != nil {
			return err
		}
	}
	p := publisher{cfg: cfg, client: client, initial: position == 0}
	defer p.abort(context.WithoutCancel(ctx))
	for change, err := range db.Changes(ctx, position, rows...) {
		if err != nil {
			return err
		}
		if err := p.add(ctx, change, sub); err != nil {
			return err
		}
	}
	return nil
}

// publisher publishes changes; it holds the transaction of Kafka that is under way.
type publisher struct {
	cfg       Config
	client    *kgo.Client
	open      bool
	initial   bool // the initial state is not committed yet
	committed time.Time
	failed    chan error // capacity 1: the first failed record
}

// add produces a change, or commits the transaction at a resolved timestamp.
func (p *publisher) add(ctx context.Context, c percolator.Change, sub *percolator.Subscription) error {
	if c.Resolved == 0 {
		return p.produce(ctx, &kgo.Record{Key: []byte(c.Row)}, c)
	}
	if !p.initial && time.Since(p.committed) < p.cfg.CommitEvery {
		return nil
	}
	position := &kgo.Record{Topic: p.cfg.Positions, Key: []byte(p.cfg.Name)}
	if err := p.produce(ctx, position, c.Resolved); err != nil {
		return err
	}
	if err := p.client.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-p.failed:
		return fmt.Errorf("feedkafka: produce: %w", err)
	default:
	}
	if err := p.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("feedkafka: commit: %w", err)
	}
	p.open, p.initial, p.committed = false, false, time.Now()
	if sub != nil {
		return sub.Advance(ctx, c.Resolved)
	}
	return nil
}

// produce adds a record to the transaction, which it begins if none is open.
func (p *publisher) produce(ctx context.Context, r *kgo.Record, value any) (err error) {
	if r.Value, err = json.Marshal(value); err != nil {
		return err
	}
	if !p.open {
		if err := p.client.BeginTransaction(); err != nil {
			return err
		}
		p.open, p.failed = true, make(chan error, 1)
	}
	failed := p.failed
	p.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	})
	return nil
}

// abort ends a transaction that was not committed.
func (p *publisher) abort(ctx context.Context) {
	if !p.open {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// If it fails, the next publisher's fencing aborts it.
	_ = p.client.AbortBufferedRecords(ctx)
	_ = p.client.EndTransaction(ctx, kgo.TryAbort)
}

// storedPosition returns the last committed position of the publisher, or 0.
func storedPosition(ctx context.Context, cfg Config) (position percolator.Timestamp, err error) {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{cfg.Positions: {0: kgo.NewOffset().AtStart()}}),
	}, cfg.Options...)...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	end, err := endOf(ctx, client, cfg.Positions)
	for next := int64(0); err == nil && next < end; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if r.Attrs.IsControl() || string(r.Key) != cfg.Name || next > end {
				return
			}
			ts, parseErr := strconv.ParseUint(string(r.Value), 10, 64)
			if parseErr != nil {
				err = fmt.Errorf("feedkafka: the position at offset %d of topic %q is damaged: %w", r.Offset, r.Topic, parseErr)
			}
			position = percolator.Timestamp(ts)
		})
	}
	return position, err
}

// endOf returns the offset after the last record of the topic's first partition that is decided.
func endOf(ctx context.Context, client *kgo.Client, topic string) (int64, error) {
	req := kmsg.NewListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, 1
	t, p := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	t.Topic, p.Timestamp = topic, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("feedkafka: the broker does not say where topic %q ends", topic)
	}
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		return 0, fmt.Errorf("feedkafka: find the end of topic %q: %w", topic,
			kerr.ErrorForCode(code))
	}
	return resp.Topics[0].Partitions[0].Offset, nil
}

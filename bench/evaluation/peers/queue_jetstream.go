package peers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openJetStream opens a server that syncs every message, and a client through a socket. The handler
// publishes its result, and then acknowledges the job and waits for the server's answer.
func openJetStream(ctx context.Context, dir string, jobs *tracker) (_ *queue, err error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, SyncAlways: true, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	stop := func() { s.Shutdown(); s.WaitForShutdown() }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the server of NATS does not start")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	for name, retention := range map[string]jetstream.RetentionPolicy{"jobs": jetstream.WorkQueuePolicy, "results": jetstream.LimitsPolicy} {
		if _, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".*"}, Storage: jetstream.FileStorage, Retention: retention,
		}); err != nil {
			return nil, err
		}
	}
	consumer, err := js.CreateConsumer(ctx, "jobs", jetstream.ConsumerConfig{Durable: "handler", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return nil, err
	}
	h := &jetHandlers{js: js, jobs: jobs}
	consuming, err := consumer.Consume(h.handle)
	if err != nil {
		return nil, err
	}
	return &queue{
		atLeastOnce: true,
		put: func(ctx context.Context, job int) error {
			_, err := js.Publish(ctx, "jobs."+strconv.Itoa(job), payload)
			return err
		},
		results: func(ctx context.Context) (all, different int, err error) {
			stream, err := js.Stream(ctx, "results")
			if err != nil {
				return 0, 0, err
			}
			info, err := stream.Info(ctx)
			if err != nil {
				return 0, 0, err
			}
			return int(info.State.Msgs), int(info.State.NumSubjects), nil
		},
		cpu: func() time.Duration { return 0 },
		close: func(context.Context) error {
			consuming.Stop()
			<-consuming.Closed()
			h.running.Wait()
			conn.Close()
			stop()
			return h.failed
		},
	}, nil
}

// jetHandlers runs a goroutine for each job: at most 1,000, JetStream's default of jobs without an
// acknowledgment.
type jetHandlers struct {
	js      jetstream.JetStream
	jobs    *tracker
	running sync.WaitGroup

	mu     sync.Mutex
	failed error
}

func (h *jetHandlers) handle(m jetstream.Msg) {
	h.running.Go(func() {
		if err := h.work(m); err != nil {
			h.mu.Lock()
			h.failed = errors.Join(h.failed, err)
			h.mu.Unlock()
		}
	})
}

func (h *jetHandlers) work(m jetstream.Msg) error {
	number, _ := strings.CutPrefix(m.Subject(), "jobs.")
	job, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	h.jobs.start(job)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := h.js.Publish(ctx, "results."+number, m.Data()); err != nil {
		return fmt.Errorf("publish the result of job %d: %w", job, err)
	}
	if err := m.DoubleAck(ctx); err != nil {
		return fmt.Errorf("acknowledge job %d: %w", job, err)
	}
	h.jobs.finish(job)
	return nil
}

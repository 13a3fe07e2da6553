package main

import (
	"context"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// Names of the kinds.
const (
	badgerUpdate  = "badger synced Update"
	badgerGrouped = "badger grouped batch"
	badgerGet     = "badger Get"
	rawPut        = "raw tablet put"
	rawGet        = "raw tablet get"
	onePhase      = "one-phase txn"
	twoPhase      = "two-phase txn"
	readTxn       = "read txn"
)

// keysPerCaller is the number of cells that each caller uses in rotation.
const keysPerCaller = 2000

// kinds returns the kinds in the order of measurement: those that report compares are adjacent
// where possible.
func kinds() []kind {
	return []kind{
		{badgerGet, beginBadgerGet},
		{rawGet, beginNode(rawGet)},
		{readTxn, beginNode(readTxn)},
		{badgerUpdate, beginBadger(false)},
		{badgerGrouped, beginBadger(true)},
		{rawPut, beginNode(rawPut)},
		{onePhase, beginNode(onePhase)},
		{twoPhase, beginNode(twoPhase)},
	}
}

var payload = []byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123")

// badgerAlone is a bare Badger database.
type badgerAlone struct {
	db     *badger.DB
	queue  chan *groupedPut // nil: each put is an Update of its own
	done   sync.WaitGroup
	reads  bool
	mu     sync.Mutex
	puts   int
	synced int
}

type groupedPut struct {
	key  []byte
	done chan error
}

func openBadger(dir string) (*badger.DB, error) {
	options := badger.DefaultOptions(dir).WithSyncWrites(true).WithLoggingLevel(badger.ERROR)
	return badger.Open(options)
}

func beginBadger(grouped bool) func(context.Context, string) (subject, error) {
	return func(_ context.Context, dir string) (subject, error) {
		db, err := openBadger(dir)
		if err != nil {
			return nil, err
		}
		b := &badgerAlone{db: db}
		if grouped {
			b.queue = make(chan *groupedPut, 4096)
			b.done.Go(b.drain)
		}
		return b, nil
	}
}

func beginBadgerGet(_ context.Context, dir string) (subject, error) {
	db, err := openBadger(dir)
	if err != nil {
		return nil, err
	}
	b := &badgerAlone{db: db, reads: true}
	w := db.NewWriteBatch()
	for caller := range 512 {
		for i := range 20 {
			if err := w.Set(key(caller, i), payload); err != nil {
				return nil, err
			}
		}
	}
	return b, w.Flush()
}

// drain writes all queued puts in one synced transaction: a fair upper bound for group commit.
func (b *badgerAlone) drain() {
	for first := range b.queue {
		group := []*groupedPut{first}
		for more := true; more && len(group) < 1024; {
			select {
			case p, ok := <-b.queue:
				if more = ok; ok {
					group = append(group, p)
				}
			default:
				more = false
			}
		}
		err := b.db.Update(func(t *badger.Txn) error {
			for _, p := range group {
				if err := t.Set(p.key, payload); err != nil {
					return err
				}
			}
			return nil
		})
		b.mu.Lock()
		b.puts += len(group)
		b.synced++
		b.mu.Unlock()
		for _, p := range group {
			p.done <- err
		}
	}
}

func (b *badgerAlone) do(_ context.Context, caller, i int) error {
	switch {
	case b.reads:
		return b.db.View(func(t *badger.Txn) error {
			item, err := t.Get(key(caller, i%20))
			if err != nil {
				return err
			}
			return item.Value(func([]byte) error { return nil })
		})
	case b.queue != nil:
		p := &groupedPut{key: key(caller, i%keysPerCaller), done: make(chan error, 1)}
		b.queue <- p
		return <-p.done
	default:
		return b.db.Update(func(t *badger.Txn) error {
			return t.Set(key(caller, i%keysPerCaller), payload)
		})
	}
}

func (b *badgerAlone) batches() (tablet, log float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.synced == 0 {
		return 0, 0
	}
	return 0, float64(b.puts) / float64(b.synced)
}

func (b *badgerAlone) close() error {
	if b.queue != nil {
		close(b.queue)
		b.done.Wait()
	}
	return b.db.Close()
}

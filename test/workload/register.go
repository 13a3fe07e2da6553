package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/linear"
)

// The number of registers in use, and of changes to a register before a new one replaces it, since
// the time of the decision grows with the operations on one register.
const (
	openRegisters  = 4
	registerLength = 80
	// patience bounds the time of the decision about one register, or about the oracle.
	patience = time.Minute
)

// Register makes workers read, write and replace single cells, and then checks that each is a
// linearizable register (package linear): every transaction gets its timestamps between its call
// and return, so that a read that begins after a write's acknowledgment sees it, whichever leader
// answers.
func Register(ctx context.Context, db *percolator.DB, l Load) error {
	h, err := newRegisters(ctx, db)
	if err != nil {
		return err
	}
	err = l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		db, row := l.db(db, worker), h.row(rng)
		switch rng.IntN(4) {
		case 0:
			return h.write(ctx, db, worker, row)
		case 1:
			return h.swap(ctx, db, worker, row)
		}
		return h.read(ctx, db, worker, row)
	})
	for _, row := range h.rows() {
		err = errors.Join(err, patiently(ctx, func() error {
			return h.read(ctx, db, l.Workers, row)
		}))
	}
	return errors.Join(err, l.keep("register", h.ops,
		wrap("register", linear.Registers(h.ops, patience))))
}

func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("workload: %s: %w", name, err)
}

// registers is the history of a run.
type registers struct {
	run   string // tells this run's rows from those of others on the same repository
	began time.Time
	value atomic.Int64

	mu  sync.Mutex
	ops []linear.Op
}

func newRegisters(ctx context.Context, db *percolator.DB) (*registers, error) {
	run, err := newRun(ctx, db)
	return &registers{run: "register" + run, began: time.Now()}, err
}

// newRun returns a name that is unique in the repository.
func newRun(ctx context.Context, db *percolator.DB) (name string, err error) {
	err = patiently(ctx, func() error {
		ts, err := handle.Client(db).Timestamp(ctx)
		name = strconv.FormatUint(uint64(ts), 36)
		return err
	})
	return name, err
}

func (h *registers) now() int64 { return time.Since(h.began).Nanoseconds() }

// row returns one of the registers in use.
func (h *registers) row(rng *rand.Rand) string {
	generation := int(h.value.Load()) / (openRegisters * registerLength)
	return row(h.run, generation*openRegisters+rng.IntN(openRegisters))
}

// rows returns all registers used so far.
func (h *registers) rows() (out []string) {
	seen := map[string]bool{}
	for _, op := range h.ops {
		if !seen[op.Key] {
			seen[op.Key] = true
			out = append(out, op.Key)
		}
	}
	return out
}

func (h *registers) add(op linear.Op) {
	op.Return = h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// read records the value in a snapshot. A failed read is not recorded.
func (h *registers) read(ctx context.Context, db *percolator.DB, worker int, row string) error {
	op := linear.Op{Client: worker, Key: row, Call: h.now()}
	n, err := settled(ctx, db, row)
	if err != nil {
		return err
	}
	op.Found = int64(n)
	h.add(op)
	return nil
}

// write sets a value unconditionally. Conflicts are retried: attempts that conflict have not
// written.
func (h *registers) write(ctx context.Context, db *percolator.DB, worker int, row string) error {
	op := linear.Op{
		Client: worker, Key: row, Kind: linear.Write, Value: h.value.Add(1), Call: h.now(),
	}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(row, value, strconv.AppendInt(nil, op.Value, 10))
		return nil
	}, percolator.Name("register write"))
	done, unknown := outcome(err)
	if op.Unknown = unknown; done || unknown {
		h.add(op)
	}
	return err
}

// swap reads a value and replaces it, in one attempt.
func (h *registers) swap(ctx context.Context, db *percolator.DB, worker int, row string) error {
	op := linear.Op{Client: worker, Key: row, Kind: linear.Swap, Call: h.now()}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	n, err := number(ctx, tx, row)
	if err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	op.Found, op.Value = int64(n), h.value.Add(1)
	tx.Set(row, value, strconv.AppendInt(nil, op.Value, 10))
	_, err = tx.Commit(ctx)
	done, unknown := outcome(err)
	if op.Unknown = unknown; !done && !unknown {
		op.Kind, op.Value = linear.Read, 0 // the change was refused, but the read counts
	}
	h.add(op)
	return err
}

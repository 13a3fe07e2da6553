package txn_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// answers is a process whose answers are set by the test; where they are nil, the world answers.
type answers struct {
	*txntest.Process
	catalogue func() (*pb.Catalogue, error)
	status    func() (*pb.NodeStatusResponse, error)
	tables    func() []*pb.Table
	locate    func(table mvcc.TableID, row string) ([]*pb.TabletDescriptor, error)
	meta      func() error // of every query of meta
	create    func(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error)
	// answer, if it returns one, replaces a tablet's answer.
	answer func(req *pb.TabletRequest) *pb.TabletResponse
}

func (a *answers) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	resp, err := a.Process.Send(ctx, d, req)
	if err == nil && a.answer != nil {
		if own := a.answer(req); own != nil {
			return own, nil
		}
	}
	return resp, err
}

func (a *answers) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	if a.catalogue != nil {
		return a.catalogue()
	}
	return ofMeta(a, func() (*pb.Catalogue, error) { return a.Process.Catalogue(ctx) })
}

func (a *answers) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	if a.status != nil {
		return a.status()
	}
	return ofMeta(a, func() (*pb.NodeStatusResponse, error) { return a.Process.NodeStatus(ctx) })
}

func (a *answers) Tables(ctx context.Context) ([]*pb.Table, error) {
	if a.tables != nil {
		return a.tables(), nil
	}
	return ofMeta(a, func() ([]*pb.Table, error) { return a.Process.Tables(ctx) })
}

func (a *answers) CreateTable(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
	if a.create != nil {
		return a.create(ctx, req)
	}
	return ofMeta(a, func() (*pb.Table, error) { return a.Process.CreateTable(ctx, req) })
}

func (a *answers) SplitTablet(ctx context.Context, table, row string) error {
	_, err := ofMeta(a, func() (int, error) { return 0, a.Process.SplitTablet(ctx, table, row) })
	return err
}

func (a *answers) Observers(context.Context) ([]*pb.ObserverState, error) {
	return ofMeta(a, func() ([]*pb.ObserverState, error) { return nil, nil })
}

// ofMeta returns ask's answer, unless meta fails.
func ofMeta[T any](a *answers, ask func() (T, error)) (v T, err error) {
	if a.meta != nil {
		if err := a.meta(); err != nil {
			return v, err
		}
	}
	return ask()
}

func (a *answers) Locate(ctx context.Context, table mvcc.TableID, row string,
	limit int) ([]*pb.TabletDescriptor, error) {
	if a.locate != nil {
		return a.locate(table, row)
	}
	return a.Process.Locate(ctx, table, row, limit)
}

// answering returns a client over a new process whose answers the test changes.
func (w *world) answering(cfg txn.Config) (*txn.Client, *answers) {
	w.t.Helper()
	a := &answers{Process: w.Process(7, uint64(w.Timestamps(1)))}
	c := txn.NewClient(a, cfg)
	w.t.Cleanup(func() {
		a.Inject(nil)
		a.Oracle(nil)
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return c, a
}

func refused(code pb.Error_Code) error {
	return &txn.ServerError{Code: code, Message: "refused by the test"}
}

// questions are the queries of meta that a client repeats.
var questions = map[string]func(ctx context.Context, c *txn.Client) error{
	"create": func(ctx context.Context, c *txn.Client) error {
		return c.CreateTable(ctx, "new", []string{"k"})
	},
	"split": func(ctx context.Context, c *txn.Client) error { return c.SplitTablet(ctx, "t", "k") },
	"tables": func(ctx context.Context, c *txn.Client) error {
		_, err := c.Tables(ctx)
		return err
	},
	"name": func(ctx context.Context, c *txn.Client) error {
		_, err := c.TableID(ctx, "t")
		return err
	},
	"catalogue": func(ctx context.Context, c *txn.Client) error {
		_, err := c.Catalogue(ctx)
		return err
	},
	"status": func(ctx context.Context, c *txn.Client) error {
		_, err := c.NodeStatus(ctx)
		return err
	},
	"observers": func(ctx context.Context, c *txn.Client) error {
		_, err := c.Observers(ctx)
		return err
	},
}

// TestMetaFails: a query of meta is repeated until it is answered, refused permanently or timed
// out, and the error says which.
func TestMetaFails(t *testing.T) {
	down, cancelled := errors.New("down"), errors.New("the context is to end")
	many := slices.Repeat([]error{refused(pb.Error_CODE_UNAVAILABLE), down}, 1000)
	for name, test := range map[string]struct {
		answers []error
		want    error
		asked   int // 0: more than once
	}{
		"answered":         {[]error{nil}, nil, 1},
		"answered at last": {append(slices.Clone(many[:4]), nil), nil, 5},
		"may not be asked": {[]error{refused(pb.Error_CODE_PERMISSION)}, txn.ErrPermission, 1},
		"makes no sense":   {[]error{refused(pb.Error_CODE_INVALID)}, txn.ErrInvalid, 1},
		"is too much":      {[]error{refused(pb.Error_CODE_TOO_LARGE)}, txn.ErrTooLarge, 1},
		"of a table there is not": {
			[]error{down, refused(pb.Error_CODE_NO_TABLE)}, txn.ErrNoTable, 2},
		"nobody answers":      {many, txn.ErrUnavailable, 0},
		"the caller gives up": {append(slices.Clone(many[:3]), cancelled), context.Canceled, 4},
	} {
		for question, ask := range questions {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c, a := w.answering(txn.Config{OperationTimeout: 3 * time.Second})
				ctx, cancel := context.WithCancel(w.ctx)
				defer cancel()
				asked, began := 0, time.Now()
				a.meta = func() error {
					err := test.answers[asked]
					if asked++; err == cancelled {
						cancel()
					}
					return err
				}
				err := ask(ctx, c)
				if !errors.Is(err, test.want) || (asked != test.asked && test.asked != 0) {
					t.Errorf("%s: %s: queried %d times, want %d: %v", question, name, asked,
						test.asked, err)
				}
				if took := time.Since(began); asked > 80 || took > 4*time.Second {
					t.Errorf("%s: %s: queried %d times in %v", question, name, asked, took)
				}
			})
		}
	}
}

// TestMetaOfAClosedClient: a closed client sends meta no query and returns ErrClosed.
func TestMetaOfAClosedClient(t *testing.T) {
	w := newWorld(t)
	c, a := w.answering(txn.Config{})
	s, err := c.Snapshot(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	a.meta = func() error { t.Error("asked"); return nil }
	for name, ask := range questions {
		if err := ask(w.ctx, c); !errors.Is(err, txn.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
	for name, err := range map[string]error{
		"snapshot at": func() error { _, err := c.SnapshotAt(w.ctx, s.Timestamp()); return err }(),
		"transact":    func() error { _, err := w.attempt(c, "v", []string{"a"}); return err }(),
		"timestamp":   func() error { _, err := c.Timestamp(w.ctx); return err }(),
	} {
		if !errors.Is(err, txn.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}

// TestTableNames: invalid names are refused before a query.
func TestTableNames(t *testing.T) {
	w := newWorld(t)
	c, a := w.answering(txn.Config{})
	asked := 0
	a.meta = func() error { asked++; return nil }
	for _, test := range []struct {
		name, key string
		want      error
	}{
		{"", "k", txn.ErrInvalid}, {strings.Repeat("n", 256), "k", txn.ErrInvalid},
		{"\xff", "k", txn.ErrInvalid}, {"n", "", txn.ErrInvalid},
		{"n", strings.Repeat("k", 4097), txn.ErrTooLarge},
	} {
		err := c.CreateTable(w.ctx, test.name, []string{"j", test.key})
		if !errors.Is(err, test.want) || asked != 0 {
			t.Errorf("table %.9q, key %.9q: %v after %d questions", test.name, test.key, err, asked)
		}
	}
	name, keys := strings.Repeat("n", 255), []string{strings.Repeat("k", 4096)}
	if err := c.CreateTable(w.ctx, name, keys); err != nil {
		t.Errorf("as long as may be: %v", err)
	}
}

// TestTablesThatCannotBeUsed: a table that is being restored, or for which the client has no grant,
// counts as missing, and the error has a remedy. Neither is listed.
func TestTablesThatCannotBeUsed(t *testing.T) {
	w := newWorld(t)
	c, a := w.answering(txn.Config{})
	tables := []*pb.Table{{Id: 16, Name: "t"}, {Id: 20, Name: "dropped", DroppedTs: 5},
		{Id: 22, Name: "half", Restoring: &pb.RestoreMark{Source: "/backups/b"}}}
	a.tables = func() []*pb.Table { return tables }
	for _, test := range []struct {
		name, says string
		want       error
	}{
		{"half", "being restored from /backups/b", txn.ErrUnavailable},
		{"dropped", "dropped", txn.ErrNoTable}, {"none", "none", txn.ErrNoTable},
	} {
		_, err := c.TableID(w.ctx, test.name)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) ||
			strings.Contains(err.Error(), "grant") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	tables = append(tables, &pb.Table{Id: 24, Hidden: true}, &pb.Table{Id: 18, Name: "a"})
	if _, err := c.TableID(w.ctx, "secret"); !errors.Is(err, txn.ErrNoTable) ||
		!strings.Contains(err.Error(), "percolator grant") {
		t.Errorf("a table that may be hidden: %v", err)
	}
	list, err := c.Tables(w.ctx)
	var names []string
	for _, table := range list {
		names = append(names, table.Name)
	}
	if want := []string{"a", "half", "t"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("listed %q, want %q; %v", names, want, err)
	}
}

// TestTableNamesAreAskedOnce: any number of callers that look up a table share one query, and a
// caller that cancels its wait does not delay the others.
func TestTableNamesAreAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, a := w.answering(txn.Config{})
		asked, answer := 0, make(chan struct{})
		a.meta = func() error { asked++; <-answer; return nil }
		var wg sync.WaitGroup
		gone, give := context.WithCancel(w.ctx)
		ask := func(ctx context.Context, want error) {
			wg.Go(func() {
				if _, err := c.TableID(ctx, "t"); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
		}
		ask(w.ctx, nil)
		synctest.Wait()
		for range 50 {
			ask(w.ctx, nil)
			ask(gone, context.Canceled)
		}
		synctest.Wait()
		give()
		synctest.Wait()
		close(answer)
		wg.Wait()
		if asked != 1 {
			t.Errorf("%d questions", asked)
		}
	})
}

// TestCreateTableGoesOn: a client repeats its request until no split key is pending, beyond
// OperationTimeout too while tablets are being created. Only the caller's deadline ends it then,
// and the error states the progress.
func TestCreateTableGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, a := w.answering(txn.Config{OperationTimeout: 3 * time.Second})
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		pending := len(keys)
		step := func(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
			if err := txn.Sleep(ctx, 2*time.Second); err != nil {
				return nil, err
			}
			pending--
			return &pb.Table{Name: req.Name, PendingSplitKeys: req.SplitKeys[:pending]}, nil
		}
		a.create = step
		if err := c.CreateTable(w.ctx, "t", keys); err != nil || pending > 0 {
			t.Errorf("%d keys are left: %v", pending, err)
		}
		pending = len(keys)
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		defer cancel()
		err := c.CreateTable(ctx, "t", keys)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "6 of the 8 split keys") {
			t.Errorf("the deadline has come: %v", err)
		}
		pending = len(keys)
		a.create = func(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
			if pending < len(keys) {
				return nil, refused(pb.Error_CODE_UNAVAILABLE)
			}
			return step(ctx, req)
		}
		patient, cancel := context.WithTimeout(w.ctx, 20*time.Second)
		defer cancel()
		began := time.Now()
		err = c.CreateTable(patient, "t", keys)
		if took := time.Since(began); err == nil || took < 20*time.Second {
			t.Errorf("given up after %v: %v", took, err)
		}
	})
}

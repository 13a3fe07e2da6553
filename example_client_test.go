package percolator_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/percolator-go/percolator"
)

// A client connects with its certificate and batches its requests for up to a millisecond.
func ExampleDial() {
	ctx := context.Background()
	db, err := percolator.Dial(ctx, []string{"10.0.0.1", "10.0.0.2"}, percolator.ClientConfig{
		CertFile: "client.crt", KeyFile: "client.key", CAFile: "ca.crt",
		Batch: percolator.ClientBatch{Linger: time.Millisecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	fmt.Println(db.Tables(ctx))
}

// The certificate comes from a key management service, not from a file.
func ExampleClientConfig() {
	fromService := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return nil, errors.New("the service is down")
	}
	_, err := percolator.Dial(context.Background(), []string{"127.0.0.1:1"}, percolator.ClientConfig{
		TLS:     &tls.Config{MinVersion: tls.VersionTLS13, GetClientCertificate: fromService},
		LockTTL: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	fmt.Println(errors.Is(err, percolator.ErrUnavailable))
	// Output: true
}

// A table is created once, split where load is expected.
func ExampleTableSpec() {
	ctx := context.Background()
	db, done := openExample()
	defer done()
	err := db.CreateTable(ctx, percolator.TableSpec{Name: "users", SplitKeys: []string{"g", "p"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	tables, err := db.Tables(ctx)
	for _, t := range tables {
		fmt.Println(t.Name, t.SplitKeys, err)
	}
	// Output: users [g p] <nil>
}

// Begin and Commit, for a program with its own retry policy. It prints the commit timestamp.
func ExampleDB_Begin() {
	ctx := context.Background()
	db, done := openExample("users")
	defer done()
	name := percolator.Column{Table: "users", Name: "name"}
	tx, err := db.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	tx.Set("u1", name, []byte("Ann"))
	var at percolator.Timestamp
	if at, err = tx.Commit(ctx); err != nil {
		fmt.Println(err) // ErrConflict and ErrLocked: not committed
		return
	}
	fmt.Println(at > tx.StartTS(), time.Since(at.Time()) < time.Minute)
	// Output: true true
}

// A transaction that stores the time of its snapshot needs it before its first read.
func ExampleTx_Start() {
	ctx := context.Background()
	db, done := openExample("events")
	defer done()
	seen := percolator.Typed[time.Time](percolator.Column{Table: "events", Name: "seen"})
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		start, err := tx.Start(ctx)
		seen.Set(tx, "e1", start.Time())
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

// Options shared by the transactions of a package.
func ExampleTxOption() {
	ctx := context.Background()
	db, done := openExample("users")
	defer done()
	options := []percolator.TxOption{percolator.Name("sign up"), percolator.MaxRetries(10)}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("u1", percolator.Column{Table: "users", Name: "name"}, []byte("Ann"))
		return nil
	}, options...)
	fmt.Println(err)
	// Output: <nil>
}

// A function that reads from a transaction or a snapshot takes a Reader.
func ExampleReader() {
	count := func(ctx context.Context, r percolator.Reader, rows percolator.RowRange) (n int, err error) {
		for _, err := range r.Scan(ctx, rows, title) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	err = db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		n, err := count(ctx, s, percolator.Rows("books").Prefix("novel/"))
		fmt.Println(n, "novels")
		return err
	})
	fmt.Println(err)
	// Output:
	// 2 novels
	// <nil>
}

// The last book before "p", then a page of two.
func ExampleRowRange() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	all := percolator.Rows("books")
	_ = db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		for _, rows := range []percolator.RowRange{all.Before("p").Reverse().Limit(1), all.Limit(2)} {
			for cell, err := range s.Scan(ctx, rows, title) {
				if err != nil {
					return err
				}
				fmt.Print(cell.Row, " ")
			}
		}
		return nil
	})
	// Output: novel/ulysses novel/emma novel/ulysses
}

// Cells are read by their addresses, and are JSON objects in logs and APIs.
func ExampleCell() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	_ = db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		cells, err := s.GetMulti(ctx, percolator.CellKey{Row: "novel/emma", Column: title},
			percolator.CellKey{Row: "novel/none", Column: title})
		for _, c := range cells {
			key, _ := json.Marshal(c.CellKey)
			fmt.Println(string(key), string(c.Value))
		}
		return err
	})
	// Output: {"row":"novel/emma","column":{"table":"books","name":"title"}} Emma
}

// A snapshot reads the state of an earlier time.
func ExampleSnapshot() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	before, err := db.Snapshot(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer before.Close()
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("novel/emma", title, []byte("Emma, a novel"))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := db.SnapshotAt(ctx, before.StartTS())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer again.Close()
	old, _, err := again.Get(ctx, "novel/emma", title)
	fmt.Println(string(old), err)
	// Output: Emma <nil>
}

// A value that is too large is refused; the error names the limit.
func ExampleLimitError() {
	ctx := context.Background()
	db, done := openExample("users")
	defer done()
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(strings.Repeat("x", 5000), percolator.Column{Table: "users", Name: "name"}, nil)
		return nil
	})
	if limit, ok := errors.AsType[*percolator.LimitError](err); ok {
		fmt.Println(limit.Limit, limit.Size, limit.Max, errors.Is(err, percolator.ErrTooLarge))
	}
	// Output: row 5000 4096 true
}

// A transaction on a contended row fails after a few retries.
func ExampleRetryError() {
	ctx := context.Background()
	db, done := openExample("bank")
	defer done()
	balance := percolator.Column{Table: "bank", Name: "balance"}
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		if _, _, err := tx.Get(ctx, "bob", balance); err != nil {
			return err
		}
		tx.Set("bob", balance, []byte("1"))
		// Another transaction always commits first.
		return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("bob", balance, []byte("2"))
			return nil
		})
	}, percolator.MaxRetries(2))
	if used, ok := errors.AsType[*percolator.RetryError](err); ok {
		fmt.Println(used.Retries, "retries;", "a conflict:", errors.Is(err, percolator.ErrConflict))
	}
	// Output: 2 retries; a conflict: true
}

// A loader runs many small transactions at the rate that the cluster and its observers accept.
func ExampleLoader() {
	ctx := context.Background()
	db, done := openExample("pages")
	defer done()
	loader := db.Loader(percolator.LoaderConfig{Workers: 8, Name: "load"})
	for i := range 100 {
		err := loader.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprintf("page/%03d", i), percolator.Column{Table: "pages", Name: "body"}, nil)
			return nil
		})
		if err != nil {
			fmt.Println(err)
			break
		}
	}
	fmt.Println(loader.Close())
	// Output: <nil>
}

// The counters of a client: in total, and the NameStats of one name of its transactions.
func ExampleStats() {
	ctx := context.Background()
	db, done := openExample("pages")
	defer done()
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("p", percolator.Column{Table: "pages", Name: "body"}, nil)
		return nil
	}, percolator.Name("store"))
	stats := db.Stats()
	stored := stats.ByName["store"]
	fmt.Println(stats.Begun, stored.Committed, stored.Conflicts, err)
	// Output: 1 1 0 <nil>
}

// hexCodec stores numbers as hexadecimal text.
type hexCodec struct{}

func (hexCodec) Encode(n uint32) ([]byte, error) { return fmt.Appendf(nil, "%08x", n), nil }

func (hexCodec) Decode(data []byte) (n uint32, err error) {
	_, err = fmt.Sscanf(string(data), "%x", &n)
	return n, err
}

// A custom codec. Reads of several rows return a TypedCell for each.
func ExampleCodec() {
	ctx := context.Background()
	db, done := openExample("colors")
	defer done()
	rgb := percolator.Typed(percolator.Column{Table: "colors", Name: "rgb"},
		percolator.Codec[uint32](hexCodec{}))
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		rgb.Set(tx, "red", 0xff0000)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		red, err := rgb.GetMulti(ctx, s, "red", "green")
		for _, cell := range red {
			fmt.Printf("%s %d\n", cell.Row, cell.Value)
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// red 16711680
	// <nil>
}

// Vectors of numbers with inferred types, and bytes as they are.
func ExampleTyped() {
	vector := percolator.Typed[[]float32](percolator.Column{Table: "docs", Name: "vector"})
	image := percolator.Typed(percolator.Column{Table: "docs", Name: "image"}, percolator.Bytes())
	asJSON, _ := vector.Codec.Encode([]float32{0.5, 2})
	asIs, _ := image.Codec.Encode([]byte("GIF89a"))
	fmt.Println(string(asJSON), string(asIs))
	// Output: [0.5,2] GIF89a
}

// Sessions expire an hour after their last change; the addresses of users after 30 days, and their
// names never.
func ExampleExpiry() {
	ctx := context.Background()
	db, done := openExample()
	defer done()
	err := db.CreateTable(ctx, percolator.TableSpec{
		Name: "sessions", Expiry: percolator.Expiry{After: time.Hour},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = db.SetExpiry(ctx, "users", percolator.Expiry{
		Columns: map[string]time.Duration{"address": 30 * 24 * time.Hour},
	})
	if err != nil {
		fmt.Println(err)
	}
}

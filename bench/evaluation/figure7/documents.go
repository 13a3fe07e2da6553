package figure7

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// The repository of documents in a node of this process, and its observer.

const (
	documentBytes = 1 << 10
	documentKeys  = 3
	// keysPerDocument is the number of possible keys of each kind, per document of the repository.
	keysPerDocument = 0.75
)

var (
	documentText    = percolator.Column{Table: "documents", Name: "text"}
	documentCluster = percolator.Column{Table: "documents", Name: "cluster"}
	keyDocument     = percolator.Column{Table: "keys", Name: "document"}
)

// repository is a clustered repository of n documents.
type repository struct {
	n    int
	seed uint64
	keys [][documentKeys]uint32
	of   []uint32 // cluster of each document, by the sequential algorithm
	node *node.Node
}

// keysOf returns the keys of a document: numbers, one for each kind.
func (p *repository) keysOf(document int) (keys [documentKeys]uint32) {
	for i := range keys {
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, p.seed, " ", document, " ", i) // a hash does not fail
		keys[i] = uint32(h.Sum64() % uint64(max(keysPerDocument*float64(p.n), 1)))
	}
	return keys
}

func documentRow(document uint32) string { return fmt.Sprintf("document/%09d", document) }

func keyRow(kind int, key uint32) string { return fmt.Sprintf("%d/%09d", kind, key) }

// index is the cluster recorded for each key.
type index [documentKeys]map[uint32]uint32

func newIndex() (x index) {
	for i := range x {
		x[i] = map[uint32]uint32{}
	}
	return x
}

// add clusters a document: it joins the cluster of its first key that is known, and its unknown keys
// lead to that cluster.
func (x index) add(document uint32, keys [documentKeys]uint32) uint32 {
	of := document
	for i, k := range keys {
		if c, ok := x[i][k]; ok {
			of = c
			break
		}
	}
	for i, k := range keys {
		if _, ok := x[i][k]; !ok {
			x[i][k] = of
		}
	}
	return of
}

// observe registers the observer.
func (p *repository) observe(r *percolator.Registry) {
	r.Strong("cluster", documentText, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		var document int
		if _, err := fmt.Sscanf(n.Row, "document/%d", &document); err != nil {
			return err
		}
		keys := p.keysOf(document)
		cells := make([]percolator.CellKey, documentKeys)
		for i, k := range keys {
			cells[i] = percolator.CellKey{Row: keyRow(i, k), Column: keyDocument}
		}
		found, err := tx.GetMulti(ctx, cells...)
		if err != nil {
			return err
		}
		of := n.Row
		if len(found) > 0 {
			of = string(found[0].Value) // in the order of kinds
		}
		for _, c := range cells {
			if !slices.ContainsFunc(found, func(f percolator.Cell) bool { return f.Row == c.Row }) {
				tx.Set(c.Row, c.Column, []byte(of))
			}
		}
		tx.Set(n.Row, documentCluster, []byte(of))
		return nil
	})
}

// build clusters n documents in memory.
func build(n int, seed uint64) *repository {
	p := &repository{n: n, seed: seed, keys: make([][documentKeys]uint32, n), of: make([]uint32, n)}
	x := newIndex()
	for doc := range n {
		p.keys[doc] = p.keysOf(doc)
		p.of[doc] = x.add(uint32(doc), p.keys[doc])
	}
	return p
}

// open opens a node and loads the repository by `load --bulk`.
func (p *repository) open(ctx context.Context, dir, binary string) error {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Observers = filepath.Join(dir, "node"), "127.0.0.1:0", "", true, p.observe
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	p.node = n
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: keyDocument.Table}); err != nil {
		return err
	}
	text := strings.Repeat("x", documentBytes)
	err = p.load(ctx, dir, binary, documentText.Table, func(line func(string, ...any)) {
		for doc, c := range p.of {
			line(`{"row":%q,"columns":{"cluster":%q,"text":%q}}`, documentRow(uint32(doc)), documentRow(c), text)
		}
	})
	if err != nil {
		return err
	}
	return p.load(ctx, dir, binary, keyDocument.Table, func(line func(string, ...any)) {
		x := newIndex()
		for doc := range p.n {
			x.add(uint32(doc), p.keys[doc])
		}
		for kind := range x {
			for key := range uint32(max(keysPerDocument*float64(p.n), 1)) {
				if c, ok := x[kind][key]; ok {
					line(`{"row":%q,"columns":{"document":%q}}`, keyRow(kind, key), documentRow(c))
				}
			}
		}
	})
}

// load loads a table from a file of lines, which it removes.
func (p *repository) load(ctx context.Context, dir, binary, table string, lines func(line func(string, ...any))) error {
	name := filepath.Join(dir, table+".jsonl")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	lines(func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }) // Flush reports
	if err := errors.Join(out.Flush(), f.Close()); err != nil {
		return err
	}
	text, err := exec.CommandContext(ctx, filepath.Join(binary, "percolator"), "load", table, name, "--bulk", "--notify=false",
		"--quiet", "--insecure", "--addr", p.node.Addr()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("load: %w: %s", err, text)
	}
	return os.Remove(name)
}

// check compares the clusters of the repository's documents with those that were loaded, and those
// of the added ones, whose number must be want, with those that the sequential algorithm assigns in
// the order of their commits.
func (p *repository) check(ctx context.Context, want int) error {
	return p.node.DB().View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		var added []percolator.Cell
		clustered := 0
		for c, err := range s.Scan(ctx, percolator.Rows(documentCluster.Table), documentCluster) {
			if err != nil {
				return err
			}
			if clustered++; c.Row >= documentRow(uint32(p.n)) {
				added = append(added, c)
			} else if got := documentRow(p.of[clustered-1]); string(c.Value) != got {
				return fmt.Errorf("%s is in cluster %s, not %s", c.Row, c.Value, got)
			}
		}
		if len(added) != want || clustered != p.n+want {
			return fmt.Errorf("%d documents of the repository and %d added ones are clustered, not %d and %d", clustered-len(added), len(added), p.n, want)
		}
		slices.SortFunc(added, func(a, b percolator.Cell) int { return int(int64(a.CommitTS) - int64(b.CommitTS)) })
		x := newIndex()
		for doc := range p.n {
			x.add(uint32(doc), p.keys[doc])
		}
		for _, c := range added {
			var document int
			if _, err := fmt.Sscanf(c.Row, "document/%d", &document); err != nil {
				return err
			}
			if got := documentRow(x.add(uint32(document), p.keysOf(document))); string(c.Value) != got {
				return fmt.Errorf("%s is in cluster %s, not %s", c.Row, c.Value, got)
			}
		}
		return nil
	})
}

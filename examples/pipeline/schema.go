package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/examples/pipeline/vectors"
	"github.com/percolator-go/percolator/recipes/calls"
	"github.com/percolator-go/percolator/recipes/export"
	"github.com/percolator-go/percolator/recipes/periodic"
	"github.com/percolator-go/percolator/tuple"
)

// Tables and observers.
//
//	document ─▶ cut ─▶ piece ──────────────▶ place ─▶ shown ─▶ export ─▶ the index
//	             └───▶ text ─▶ embed ─▶ vector ─▶ spread ┘
//
// A text is stored under its hash, so that its vector is bought once, however many pieces have the
// text and however often they change. Texts and vectors are kept when no piece has them any more:
// they are the record of what was paid for. A piece is in the index once its vector is bought; until
// then the index keeps the piece's earlier text.

var (
	// documents has the documents, by path.
	documents = percolator.Typed(percolator.Column{Table: "documents", Name: "document"},
		percolator.Text[string]())

	// piece has the hash of a piece's text. A row is a tuple of path and number.
	piece = percolator.Typed(percolator.Column{Table: "pieces", Name: "piece"},
		percolator.Text[string]())
	// place notifies of a change of a piece, or of the vector of its text.
	place = percolator.Column{Table: "pieces", Name: "place"}
	// shown has the hash of the text that the index is to have for a piece.
	shown = percolator.Typed(percolator.Column{Table: "pieces", Name: "shown"},
		percolator.Text[string]())

	// text and vector have the distinct texts and their vectors, by hash. A text never changes.
	text = percolator.Typed(percolator.Column{Table: "texts", Name: "text"},
		percolator.Text[string]())
	vector = percolator.Typed[[]float32](percolator.Column{Table: "texts", Name: "vector"})
	// use exists for each piece that has a text. A row is a tuple of hash, path and number.
	use = percolator.Column{Table: "uses", Name: "use"}

	// bought records the embedder's answer for each text, for repeated runs of embed.
	bought = calls.NewLog("bought")
	// horizon has the start timestamp of the last run of the job sweep, in the row of the job.
	horizon = percolator.Typed(percolator.Column{Table: "horizons", Name: "ts"},
		percolator.Integer[uint64]())
)

const (
	maxPiece = 2000 // bytes
	// callsAtOnce bounds the calls of the embedder that are in flight in one node.
	callsAtOnce = 2
	sweep       = "sweep"
)

// register registers the observers and tables.
func (s *services) register(r *percolator.Registry) {
	r.Strong("cut", documents.Column, cut)
	if s.embedsApart {
		r.Table(percolator.TableSpec{Name: text.Column.Table})
	} else {
		r.StrongBatch("embed", text.Column, s.embed, percolator.Batch(embedder.MaxTexts),
			percolator.Concurrency(callsAtOnce))
	}
	r.StrongBatch("spread", vector.Column, spread)
	r.WeakBatch("place", place, placeAll)
	export.Register(r, s.export())
	bought.Register(r)
	r.Table(percolator.TableSpec{Name: use.Table})
	r.Table(percolator.TableSpec{Name: horizon.Column.Table})
	s.jobs().Register(r)
}

// pieces cuts a document into its paragraphs, and those above maxPiece into several pieces.
func pieces(document string) []string {
	var all []string
	for paragraph := range strings.SplitSeq(document, "\n\n") {
		paragraph = strings.TrimSpace(paragraph)
		for len(paragraph) > maxPiece {
			end := strings.LastIndexByte(paragraph[:maxPiece], '\n')
			if end <= 0 {
				end = maxPiece
			}
			all = append(all, strings.ToValidUTF8(paragraph[:end], ""))
			paragraph = strings.TrimSpace(paragraph[end:])
		}
		if paragraph != "" {
			all = append(all, strings.ToValidUTF8(paragraph, ""))
		}
	}
	return all
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// cut updates the pieces of a document, and adds the texts that are new. A text that is new in two
// documents at once conflicts, and is added by one of them.
func cut(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	document, _, err := documents.Get(ctx, tx, n.Row) // empty if it was deleted
	if err != nil {
		return err
	}
	old := map[string]string{} // hash, by row
	rows := percolator.Rows(piece.Column.Table).Prefix(tuple.Prefix(n.Row))
	for p, err := range piece.Scan(ctx, tx, rows) {
		if err != nil {
			return err
		}
		old[p.Row] = p.Value
	}
	added := map[string]string{} // text, by hash
	for i, part := range pieces(document) {
		row, hash := tuple.Pack(n.Row, i), hashOf(part)
		before, exists := old[row]
		delete(old, row)
		if before == hash {
			continue
		}
		if exists {
			tx.Delete(tuple.Pack(before, n.Row, i), use)
		}
		piece.Set(tx, row, hash)
		tx.Set(tuple.Pack(hash, n.Row, i), use, nil)
		tx.Notify(row, place)
		added[hash] = part
	}
	for row, hash := range old { // gone
		var path string
		var i int
		if err := tuple.Unpack(row, &path, &i); err != nil {
			return err
		}
		piece.Delete(tx, row)
		tx.Delete(tuple.Pack(hash, path, i), use)
		tx.Notify(row, place)
	}
	return addTexts(ctx, tx, added)
}

// addTexts adds the texts that do not exist yet.
func addTexts(ctx context.Context, tx *percolator.Tx, added map[string]string) error {
	existing, err := text.GetMulti(ctx, tx, slices.Collect(maps.Keys(added))...)
	if err != nil {
		return err
	}
	for _, t := range existing {
		delete(added, t.Row)
	}
	for hash, t := range added {
		text.Set(tx, hash, t)
	}
	return nil
}

// embed buys the vectors of new texts in one call. A repeated run takes the recorded answers.
func (s *services) embed(ctx context.Context, tx *percolator.Tx,
	changes []percolator.Notification) error {
	texts, err := text.GetMulti(ctx, tx, rowsOf(changes)...)
	if err != nil {
		return err
	}
	of := map[string]string{}
	for _, t := range texts {
		of[t.Row] = t.Value
	}
	answers, err := calls.Steps(ctx, bought, tx, changes, "embed", percolator.JSON[[]float32](),
		func(ctx context.Context, missing []int, keys []string) ([][]float32, error) {
			ask := make([]string, len(missing))
			for k, i := range missing {
				ask[k] = of[changes[i].Row]
			}
			return s.buy(ctx, ask, keys)
		})
	if err != nil {
		return err
	}
	for i, n := range changes {
		vector.Set(tx, n.Row, answers[i])
	}
	return nil
}

// spread notifies the pieces that have a text whose vector was bought. It runs after the vector's
// transaction, so it finds every piece whose placeAll has not seen the vector.
func spread(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	for _, n := range changes {
		rows := percolator.Rows(use.Table).Prefix(tuple.Prefix(n.Row)).KeysOnly()
		for u, err := range tx.Scan(ctx, rows, use) {
			if err != nil {
				return err
			}
			var hash, path string
			var i int
			if err := tuple.Unpack(u.Row, &hash, &path, &i); err != nil {
				return err
			}
			tx.Notify(tuple.Pack(path, i), place)
		}
	}
	return nil
}

// placeAll determines which texts the index is to have for the pieces. It writes shown even if
// unchanged, so that of two concurrent runs one conflicts and sees the newer piece. A piece whose
// vector is missing is left as it is, since spread will notify it.
func placeAll(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	found, err := piece.GetMulti(ctx, tx, rowsOf(changes)...)
	if err != nil {
		return err
	}
	now, hashes := map[string]string{}, make([]string, len(found))
	for i, p := range found {
		now[p.Row], hashes[i] = p.Value, p.Value
	}
	slices.Sort(hashes)
	complete, err := vector.GetMulti(ctx, tx, slices.Compact(hashes)...)
	if err != nil {
		return err
	}
	sold := map[string]bool{}
	for _, v := range complete {
		sold[v.Row] = true
	}
	for _, n := range changes {
		hash, exists := now[n.Row]
		switch {
		case !exists:
			shown.Delete(tx, n.Row)
		case sold[hash]:
			shown.Set(tx, n.Row, hash)
		}
	}
	return nil
}

func rowsOf(changes []percolator.Notification) []string {
	rows := make([]string, len(changes))
	for i, n := range changes {
		rows[i] = n.Row
	}
	return rows
}

// item is the exported value of a piece.
type item struct {
	text   string
	vector []float32
	readAt percolator.Timestamp // timestamp of the read; the index compares it with its horizon
}

// export keeps the index in step with shown.
func (s *services) export() export.Config[item] {
	return export.Config[item]{
		Name: "export", Column: shown.Column, Read: readItem,
		Apply: func(ctx context.Context, changes []export.Change[item]) error {
			all := make([]vectors.Change, len(changes))
			for i, c := range changes {
				id, err := idOf(c.Row)
				if err != nil {
					return err
				}
				all[i] = vectors.Change{ReadAt: uint64(c.Value.readAt), Entry: vectors.Entry{
					ID: id, Version: uint64(c.Version), Gone: c.Gone,
					Text: c.Value.text, Vector: c.Value.vector,
				}}
			}
			return s.apply(ctx, all)
		},
	}
}

// readItem reads the text and vector with the hash.
func readItem(ctx context.Context, r percolator.Reader, _ string, hash []byte) (item, error) {
	t, _, err := text.Get(ctx, r, string(hash))
	if err != nil {
		return item{}, err
	}
	v, _, err := vector.Get(ctx, r, string(hash))
	readAt := r.(interface{ StartTS() percolator.Timestamp }).StartTS() // r is a Tx or a Snapshot
	return item{t, v, readAt}, err
}

// idOf returns the ID in the index of a row of pieces, such as "strings/builder.go#3".
func idOf(row string) (string, error) {
	var path string
	var i int
	err := tuple.Unpack(row, &path, &i)
	return fmt.Sprintf("%s#%d", path, i), err
}

// jobs has the job that drops the index's tombstones. Its horizon is the start of its previous run, so
// that an export is refused, and reads again, only if it has taken longer than a period.
func (s *services) jobs() *periodic.Jobs {
	return periodic.New("jobs", periodic.Job{
		Name: sweep, Every: s.sweepEvery,
		Do: func(ctx context.Context, tx *percolator.Tx) error {
			ts, ok, err := horizon.Get(ctx, tx, sweep)
			if err != nil {
				return err
			}
			horizon.Set(tx, sweep, uint64(tx.StartTS()))
			if !ok {
				return nil
			}
			return s.drop(ctx, percolator.Timestamp(ts))
		},
	})
}

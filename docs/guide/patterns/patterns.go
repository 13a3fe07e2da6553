// Package patterns holds the functions that docs/guide/patterns.md shows.
package patterns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/recipes/calls"
	"github.com/percolator-go/percolator/tuple"
)

var (
	onCall = percolator.Typed(percolator.Column{Table: "doctors", Name: "on_call"},
		percolator.Text[string]())
	follows = percolator.Typed(percolator.Column{Table: "follows", Name: "since"},
		percolator.Text[string]())
	post    = percolator.Column{Table: "authors", Name: "post"}
	pages   = percolator.Column{Table: "authors", Name: "pages"} // weak
	cursor  = percolator.Typed(percolator.Column{Table: "authors", Name: "cursor"}, percolator.Text[string]())
	refresh = percolator.Column{Table: "readers", Name: "refresh"} // weak
	body    = percolator.Typed(percolator.Column{Table: "texts", Name: "body"}, percolator.Text[string]())
	words   = percolator.Typed(percolator.Column{Table: "texts", Name: "words"}, percolator.Integer[int]())
)

var (
	vectors = percolator.Typed(percolator.Column{Table: "texts", Name: "vector"}, percolator.JSON[[]float32]())
	bought  = calls.NewLog("bought")
)

// page is the number of rows that one run of spread notifies.
const page = 100

var errLast = errors.New("at least one must stay on call")

func register(r *percolator.Registry) {
	r.Strong("begin", post, begin)
	r.Weak("spread", pages, spread)
	r.StrongBatch("words", body.Column, countWords, percolator.Batch(100))
}

// leave takes a doctor off call if the other one stays. It only reads the other doctor's cell, so
// without Lock two doctors who leave at the same time would both succeed.
func leave(ctx context.Context, db *percolator.DB, who, other string) error {
	return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		_, stays, err := onCall.Get(ctx, tx, other)
		if err != nil {
			return err
		}
		if !stays {
			return errLast
		}
		tx.Lock(other, onCall.Column)
		onCall.Delete(tx, who)
		return nil
	})
}

// begin resets the cursor to the first follower, wherever spread is: a newer post must reach all
// followers, including those already notified.
func begin(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
	cursor.Set(tx, n.Row, "")
	tx.Notify(n.Row, pages)
	return nil
}

// spread notifies one page of an author's followers, and then the author's row, so that it runs
// again for the next page.
func spread(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	from, ok, err := cursor.Get(ctx, tx, n.Row)
	if err != nil || !ok { // no cursor: all followers have been notified
		return err
	}
	last, count := "", 0
	rows := percolator.Rows("follows").Prefix(tuple.Prefix(n.Row)).From(from).Limit(page)
	for f, err := range follows.Scan(ctx, tx, rows) {
		if err != nil {
			return err
		}
		var author, reader string
		if err := tuple.Unpack(f.Row, &author, &reader); err != nil {
			return err
		}
		tx.Notify(reader, refresh)
		last, count = f.Row, count+1
	}
	if count < page {
		cursor.Delete(tx, n.Row)
		return nil
	}
	cursor.Set(tx, n.Row, last+"\x00") // the first row after last
	tx.Notify(n.Row, pages)
	return nil
}

// countWords counts the words of up to a hundred texts in one transaction.
func countWords(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	rows := make([]string, len(changes))
	for i, n := range changes {
		rows[i] = n.Row
		words.Delete(tx, n.Row) // overwritten below if the text exists
	}
	texts, err := body.GetMulti(ctx, tx, rows...) // one message for all
	if err != nil {
		return err
	}
	for _, text := range texts {
		words.Set(tx, text.Row, len(strings.Fields(text.Value)))
	}
	return nil
}

// embedder buys the embeddings of texts from a service.
type embedder struct{ url string }

func (e embedder) register(r *percolator.Registry) {
	bought.Register(r)
	r.StrongBatch("embed", body.Column, e.embed, percolator.Batch(32), percolator.Concurrency(8))
}

// embed buys the embeddings of up to 32 texts in one call. The result is recorded before the run
// commits, so that a repeated run does not buy it again.
func (e embedder) embed(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	texts := make(map[string]string, len(changes))
	rows := make([]string, len(changes))
	for i, n := range changes {
		rows[i] = n.Row
	}
	found, err := body.GetMulti(ctx, tx, rows...)
	if err != nil {
		return err
	}
	for _, t := range found {
		texts[t.Row] = t.Value
	}
	got, err := calls.Steps(ctx, bought, tx, changes, "embed", percolator.JSON[[]float32](),
		func(ctx context.Context, missing []int, keys []string) ([][]float32, error) {
			ask := make([]string, len(missing))
			for k, i := range missing {
				ask[k] = texts[changes[i].Row]
			}
			return e.post(ctx, ask, keys)
		})
	if err != nil {
		return err
	}
	for i, n := range changes {
		vectors.Set(tx, n.Row, got[i])
	}
	return nil
}

// post makes one call. If the service refuses it, the observer waits on all nodes for the time that
// the service states.
func (e embedder) post(ctx context.Context, texts, keys []string) (vectors [][]float32, err error) {
	question, err := json.Marshal(map[string]any{"texts": texts, "keys": keys})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil { // nobody answers: try again soon
		return nil, percolator.RetryAfter(err, 0)
	}
	defer answer.Body.Close()
	if err := calls.Refusal(answer); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK { // counts as a failed run
		return nil, fmt.Errorf("embed: the service answered %s", answer.Status)
	}
	err = json.NewDecoder(answer.Body).Decode(&vectors)
	return vectors, err
}

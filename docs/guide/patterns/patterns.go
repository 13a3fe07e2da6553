// Package patterns holds the functions that docs/guide/patterns.md shows.
package patterns

import (
	"context"
	"errors"
	"strings"

	percolator "github.com/percolator-go/percolator"
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

// page is the number of rows that one run of spread notifies.
const page = 100

var errLast = errors.New("somebody has to stay")

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

// spread notifies one page of an author's followers, and then its own row for the next page.
func spread(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	from, ok, err := cursor.Get(ctx, tx, n.Row)
	if err != nil || !ok { // without a cursor, all followers are notified
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
	cursor.Set(tx, n.Row, last+"\x00") // the row after it
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

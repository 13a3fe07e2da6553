package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// The tables. Documents are what is loaded; a mirror of each is written in the same
// transaction, mostly in another tablet; the rest is what observers make of them.
const (
	docs    = "docs"
	mirror  = "mirror"
	words   = "words"
	links   = "links"
	control = "control"
)

// The columns.
var (
	text = percolator.Column{Table: docs, Name: "text"} // observed by "count"
	// what "count" has counted of this document
	counted = percolator.Column{Table: docs, Name: "counted"}
	targets = percolator.Column{Table: docs, Name: "targets"} // observed by "invert"
	// what "invert" has inverted of this document
	inverted = percolator.Column{Table: docs, Name: "inverted"}
	copied   = percolator.Column{Table: mirror, Name: "text"}
	total    = percolator.Column{Table: words, Name: "count"}
	link     = percolator.Column{Table: links, Name: "link"} // row target/source
	// weak, row target: observed by "degree"
	touched = percolator.Column{Table: links, Name: "touched"}
	degree  = percolator.Column{Table: links, Name: "degree"} // row target
	refuse  = percolator.Column{Table: control, Name: "refuse"}
)

const (
	lockTTL = 3 * time.Second
	// failed runs before a notification is parked: few, because the soak waits for the backoff
	// between them
	maxAttempts = 3
	bad         = "bad" // the word that "count" refuses while the cell refuse is set
	controlRow  = "count"
)

var errBad = errors.New("soak: a bad word, and bad words are refused")

// historyEnv holds Options.History in the node's environment.
const historyEnv = "TORTURE_HISTORY"

// Register registers the observers, in a process whose Config Options.Tune has made: two
// strong ones in a chain and a weak one behind them. Their deadline must be below the history.
func Register(r *percolator.Registry) {
	history, err := time.ParseDuration(os.Getenv(historyEnv))
	if err != nil {
		panic("soak: " + historyEnv + " is no duration: " + err.Error())
	}
	opts := []percolator.ObserverOption{
		percolator.Deadline(min(10*time.Second, history/2)), percolator.MaxAttempts(maxAttempts),
	}
	r.Strong("count", text, count, opts...)
	r.Strong("invert", targets, invert, opts...)
	r.Weak("degree", touched, measure, opts...)
}

// observers are the names of the observers.
var observers = []string{"count", "invert", "degree"}

// parse counts a text's words and lists its links, sorted and without repetition. Its
// first word is its generation.
func parse(s string) (count map[string]int, to []string) {
	count = map[string]int{}
	for i, w := range strings.Fields(s) {
		switch {
		case i == 0:
		case strings.HasPrefix(w, ">"):
			to = append(to, w[1:])
		default:
			count[w]++
		}
	}
	slices.Sort(to)
	return count, slices.Compact(to)
}

// count keeps the number of times that each word occurs in all documents.
func count(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	now, there, err := tx.Get(ctx, n.Row, text)
	if err != nil {
		return err
	}
	before, _, err := tx.Get(ctx, n.Row, counted)
	if err != nil {
		return err
	}
	has, to := parse(string(now))
	if has[bad] > 0 {
		if told, _, err := tx.Get(ctx, controlRow, refuse); err != nil {
			return err
		} else if len(told) > 0 {
			return errBad
		}
	}
	had, hadTo := parse(string(before))
	if err := add(ctx, tx, had, has); err != nil {
		return err
	}
	if !there {
		tx.Delete(n.Row, counted)
	} else {
		tx.Set(n.Row, counted, now)
	}
	if !slices.Equal(to, hadTo) {
		put(tx, n.Row, targets, strings.Join(to, " "))
	}
	return nil
}

// add changes the counters by has minus had, in no particular order.
func add(ctx context.Context, tx *percolator.Tx, had, has map[string]int) error {
	change := map[string]int{}
	for w, n := range has {
		change[w] += n
	}
	for w, n := range had {
		change[w] -= n
	}
	for w, by := range change {
		if by == 0 {
			continue
		}
		v, _, err := tx.Get(ctx, w, total)
		if err != nil {
			return err
		}
		sum, err := number(v)
		if err != nil {
			return err
		}
		if sum += by; sum == 0 {
			tx.Delete(w, total)
		} else {
			tx.Set(w, total, strconv.AppendInt(nil, int64(sum), 10))
		}
	}
	return nil
}

// number reads a counter; an absent one is 0.
func number(v []byte) (int, error) {
	if len(v) == 0 {
		return 0, nil
	}
	return strconv.Atoi(string(v))
}

// put writes a value, or deletes the cell if it is empty.
func put(tx *percolator.Tx, row string, c percolator.Column, value string) {
	if value == "" {
		tx.Delete(row, c)
	} else {
		tx.Set(row, c, []byte(value))
	}
}

// invert keeps a row for each link under its target.
func invert(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	now, _, err := tx.Get(ctx, n.Row, targets)
	if err != nil {
		return err
	}
	before, _, err := tx.Get(ctx, n.Row, inverted)
	if err != nil {
		return err
	}
	has, had := strings.Fields(string(now)), strings.Fields(string(before))
	for _, to := range had {
		if !slices.Contains(has, to) {
			tx.Delete(to+"/"+n.Row, link)
			tx.Notify(to, touched)
		}
	}
	for _, to := range has {
		if !slices.Contains(had, to) {
			tx.Set(to+"/"+n.Row, link, []byte("x"))
			tx.Notify(to, touched)
		}
	}
	put(tx, n.Row, inverted, string(now))
	return nil
}

// measure keeps the number of links that lead to a document.
func measure(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	in := 0
	for _, err := range tx.Scan(ctx, percolator.Rows(links).Prefix(n.Row+"/"), link) {
		if err != nil {
			return err
		}
		in++
	}
	value := ""
	if in > 0 {
		value = strconv.Itoa(in)
	}
	put(tx, n.Row, degree, value)
	return nil
}

// docRow returns a document's row, mirrorRow that of its mirror: the digits turned round, so that
// neighbours live far apart.
func docRow(id int) string { return fmt.Sprintf("d%05d", id) }

func mirrorRow(row string) string {
	b := []byte(row)
	slices.Reverse(b)
	return string(b)
}

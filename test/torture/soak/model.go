package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// model records the texts that each document may have: one if its last write was acknowledged,
// several if the node was killed during a write and the outcome is unknown.
type model struct {
	may     map[string][]string // row: texts; "" is a document that does not exist
	next    int                 // id of the next new document
	written int                 // generation of the newest draft
}

func newModel() *model { return &model{may: map[string][]string{}} }

// vocabulary is the number of words. A few of them are frequent, so that some runs conflict.
const (
	vocabulary = 2000
	frequent   = 8
)

// draft makes up a new text. Links lead to documents that exist, mostly, and to some that do not.
func (m *model) draft(rng *rand.Rand) string {
	m.written++
	b := fmt.Appendf(nil, "g%d", m.written)
	for range 3 + rng.IntN(8) {
		word := rng.IntN(vocabulary)
		if rng.IntN(40) == 0 {
			word %= frequent
		}
		b = fmt.Appendf(b, " w%d", word)
	}
	for range rng.IntN(4) {
		b = append(b, " >"+docRow(rng.IntN(max(m.next, 1)+5))...)
	}
	if rng.IntN(50) == 0 { // too long to be kept beside its write record
		b = append(b, strings.Repeat(" long", 250+rng.IntN(2000))...)
	}
	return string(b)
}

// alive lists the documents that may exist, sorted.
func (m *model) alive() []string {
	var out []string
	for row, texts := range m.may {
		if !slices.Equal(texts, []string{""}) {
			out = append(out, row)
		}
	}
	slices.Sort(out)
	return out
}

// fresh returns the rows of n new documents.
func (m *model) fresh(n int) []string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = docRow(m.next)
		m.next++
	}
	return rows
}

// pick chooses up to n of the documents that may exist.
func (m *model) pick(rng *rand.Rand, n int) []string {
	rows := m.alive()
	rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows[:min(n, len(rows))]
}

// wrote records an acknowledged write, tried one of unknown outcome.
func (m *model) wrote(row, s string) { m.may[row] = []string{s} }

func (m *model) tried(row, s string) {
	before := m.may[row]
	if len(before) == 0 {
		before = []string{""}
	}
	m.may[row] = append(slices.Clone(before), s)
}

// check compares the model with the documents read, which then replace it: an outcome that has been
// read is final.
func (m *model) check(read map[string]string) error {
	for row, s := range read {
		if !slices.Contains(m.may[row], s) {
			return fmt.Errorf("document %s is %.60q; it may only be one of %.200q", row, s,
				m.may[row])
		}
	}
	for _, row := range slices.Sorted(maps.Keys(m.may)) {
		texts := m.may[row]
		if s, there := read[row]; there {
			m.may[row] = []string{s}
			continue
		}
		if !slices.Contains(texts, "") {
			return fmt.Errorf("document %s is gone; it may only be one of %.200q", row, texts)
		}
		delete(m.may, row)
	}
	return nil
}

package soak

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/workload"
)

// contents is everything that users and observers have written, as of one timestamp.
type contents struct {
	at     percolator.Timestamp
	tables map[string]map[percolator.CellKey]string
	cells  int
	bytes  int // keys and values
	digest [sha256.Size]byte
}

// tables are those that the soak creates, in the order in which they are read.
var tables = []string{docs, mirror, words, links, control}

// read reads all tables from one snapshot.
func read(ctx context.Context, s *percolator.Snapshot) (*contents, error) {
	c := &contents{at: s.StartTS(), tables: map[string]map[percolator.CellKey]string{}}
	hash := sha256.New()
	for _, table := range append(slices.Clip(tables), workload.Table) {
		cells := map[percolator.CellKey]string{}
		c.tables[table] = cells
		for cell, err := range s.Scan(ctx, percolator.Rows(table)) {
			if err != nil {
				return nil, err
			}
			cells[cell.CellKey] = string(cell.Value)
			c.cells++
			c.bytes += len(cell.Row) + len(cell.Column.Name) + len(cell.Value)
			fmt.Fprintf(hash, "%q %q %q %q %d\n", table, cell.Row, cell.Column.Name, cell.Value,
				cell.CommitTS)
		}
	}
	hash.Sum(c.digest[:0])
	return c, nil
}

// column is what one column holds, by row.
func (c *contents) column(of percolator.Column) map[string]string {
	out := map[string]string{}
	for key, value := range c.tables[of.Table] {
		if key.Column == of {
			out[key.Row] = value
		}
	}
	return out
}

// derived computes from the documents alone what the observers must have made of them.
func (c *contents) derived() map[percolator.Column]map[string]string {
	out := map[percolator.Column]map[string]string{
		copied: {}, counted: {}, targets: {}, inverted: {}, total: {}, link: {}, degree: {},
		touched: {},
	}
	sums, in := map[string]int{}, map[string]int{}
	for row, s := range c.column(text) {
		has, to := parse(s)
		out[copied][mirrorRow(row)], out[counted][row] = s, s
		for w, n := range has {
			sums[w] += n
		}
		if len(to) > 0 {
			out[targets][row], out[inverted][row] = strings.Join(to, " "), strings.Join(to, " ")
		}
		for _, t := range to {
			out[link][t+"/"+row] = "x"
			in[t]++
		}
	}
	for w, n := range sums {
		out[total][w] = strconv.Itoa(n)
	}
	for t, n := range in {
		out[degree][t] = strconv.Itoa(n)
	}
	return out
}

// maxDifferences limits the reported differences.
const maxDifferences = 10

// differences compares the stored data with that derived from the documents.
func (c *contents) differences() []string {
	var out []string
	want := c.derived()
	for _, column := range []percolator.Column{copied, counted, targets, inverted, total, link,
		degree, touched} {
		out = append(out, compare(column, c.column(column), want[column])...)
	}
	return out
}

// compare lists the rows whose values differ, in row order.
func compare(c percolator.Column, got, want map[string]string) []string {
	rows := slices.Sorted(maps.Keys(got))
	for row := range want {
		if _, there := got[row]; !there {
			rows = append(rows, row)
		}
	}
	var out []string
	for _, row := range rows {
		g, has := got[row]
		w, must := want[row]
		if g != w || has != must {
			out = append(out, fmt.Sprintf("%s %s %q is %.80q (%t), must be %.80q (%t)", c.Table,
				c.Name, row, g, has, w, must))
		}
	}
	return out
}

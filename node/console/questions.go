package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/recent"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/config"
	"github.com/percolator-go/percolator/node/telemetry"
)

// What the console's pages ask for beside how the cluster is: each is a GET of
// /api/v1/NAME, whose form has the parameters that are named below, and whose answer is
// encoded as JSON. Requests call this on their goroutines, from before the node serves;
// nothing here keeps anything. What reads rows goes by the node's own client, as a remote
// client would, and so sees a consistent snapshot whichever nodes lead the tablets. What is
// about the node is read here, and what is about all nodes is asked of each of them
// (telemetry.Window). Every answer is bounded, in rows by package inspect and in nodes by gossip.

// Questions are those that the console answers. Data marks what shows rows, keys or values:
// httpd answers those to people who have logged in only, or where MayRead allows it.
func (c *Console) Questions() map[string]httpd.Question {
	return map[string]httpd.Question{
		"rows":   {Data: true, Answer: c.asked(c.ungranted(c.rows, false))},
		"row":    {Data: true, Answer: c.asked(c.ungranted(c.row, false))},
		"trace":  {Data: true, Answer: c.asked(c.ungranted(c.trace, true))},
		"parked": {Data: true, Answer: c.asked(c.parked)},

		"history":   {Answer: c.asked(c.lastHour)},
		"heat":      {Seen: c.heat},
		"mailboxes": {Answer: c.asked(c.mailboxes)},
		"contended": {Data: true, Answer: c.asked(c.contended)},
	}
}

// ungranted refuses questions for rows of tables that only some clients may use: the answer
// is the same for all who may ask. With all it refuses them if there is any such table,
// for the answer may have rows of others than the one that is named.
func (c *Console) ungranted(answer func(context.Context, url.Values) (any, error),
	all bool) func(context.Context, url.Values) (any, error) {
	return func(ctx context.Context, form url.Values) (any, error) {
		if err := c.refuseGranted(form.Get("table"), all); err != nil {
			return nil, err
		}
		return answer(ctx, form)
	}
}

// refuseGranted is an error if the table is for some clients only or, with all, any table is.
func (c *Console) refuseGranted(table string, all bool) error {
	// The policy as this node has read it last: a grant made since then counts within the
	// interval at which nodes read it, as it does for clients. Without certificates nobody
	// can be told from anybody, and grants mean nothing.
	known, _ := c.cfg.Policy.LastRead()
	for _, g := range known.GetGrants() {
		if c.cfg.Files != nil && (all || g.TableName == table) {
			// Its name is not told to who has not named it.
			called := "some tables are"
			if g.TableName == table {
				called = fmt.Sprintf("table %q is", table)
			}
			return fmt.Errorf("%w: %s for those who have a grant: use the command line with their "+
				"certificate", percolator.ErrInvalid, called)
		}
	}
	return nil
}

// asked adds to a question that it needs a node that serves, and which errors are the asker's.
func (c *Console) asked(answer func(context.Context, url.Values) (any, error)) func(context.Context,
	url.Values) (any, error) {
	return func(ctx context.Context, form url.Values) (any, error) {
		if c.cfg.Parts() == nil {
			return nil, cmp.Or(c.cfg.Ready(ctx), ErrStarting)
		}
		out, err := answer(ctx, form)
		// These the page shows beside the field that was filled in wrongly. Any other error
		// is the cluster's, and the page says that it could not be asked.
		for _, own := range []error{percolator.ErrInvalid, percolator.ErrNoTable,
			percolator.ErrSnapshotTooOld, inspect.ErrNoChange} {
			if errors.Is(err, own) {
				return nil, fmt.Errorf("%w: %w", httpd.ErrQuestion, err)
			}
		}
		return out, err
	}
}

// rows is a page of a table's rows: table, prefix, after, at. Rows and prefixes are in the
// form that httpd.Bytes takes, so that bytes which are no text survive an address. after is
// the last row of the page before; at is a time in Unix milliseconds, which must be within
// the history that is kept.
func (c *Console) rows(ctx context.Context, form url.Values) (any, error) {
	q := inspect.RowsQuery{Table: form.Get("table")}
	var err error
	if q.Prefix, err = httpd.Bytes(form.Get("prefix")); err != nil {
		return nil, err
	}
	if form.Has("after") {
		after, err := httpd.Bytes(form.Get("after"))
		if err != nil {
			return nil, err
		}
		q.After = &after
	}
	if q.At, err = timeOf(form.Get("at")); err != nil {
		return nil, err
	}
	return inspect.ReadRows(ctx, handle.NewDB(c.cfg.Parts().Client), q)
}

// row is all that one row holds, with the versions of each cell that history still has, its
// lock and its notification: table, row. It is what `percolator history` and `why` print.
func (c *Console) row(ctx context.Context, form url.Values) (any, error) {
	row, err := httpd.Bytes(form.Get("row"))
	if err != nil {
		return nil, err
	}
	return inspect.ReadRow(ctx, c.cfg.Parts().Client, form.Get("table"), row)
}

// parked is a page of what is parked of one observer: observer, after. The table, and so
// whether the asker may see its rows, follows from the observer.
func (c *Console) parked(ctx context.Context, form url.Values) (any, error) {
	of, err := inspect.Observer(ctx, c.cfg.Parts().Client, form.Get("observer"))
	if err != nil {
		return nil, err
	}
	if c.refuseGranted(of.GetTableName(), false) != nil {
		return nil, fmt.Errorf("%w: observer %q is of a table for those who have a grant: use the command "+
			"line with their certificate", percolator.ErrInvalid, of.GetName())
	}
	var after *string
	if form.Has("after") {
		row, err := httpd.Bytes(form.Get("after"))
		if err != nil {
			return nil, err
		}
		after = &row
	}
	return inspect.ReadParked(ctx, c.cfg.Parts().Client, of, after)
}

// The chain of a change that is shown has at most so many steps, one after another.
const traceLimit, traceDepth = 100, 16

// trace is the chain that the newest change of a row belongs to: table, row, column, at.
// The answer says where it was cut off: after traceLimit steps, at a depth of traceDepth, or
// where one change has set off more runs than are shown.
func (c *Console) trace(ctx context.Context, form url.Values) (any, error) {
	row, err := httpd.Bytes(form.Get("row"))
	if err != nil {
		return nil, err
	}
	var column *string
	if form.Has("column") {
		name, err := httpd.Bytes(form.Get("column"))
		if err != nil {
			return nil, err
		}
		column = &name
	}
	at, err := timestampOf(form.Get("at"))
	if err != nil {
		return nil, err
	}
	table, names, err := inspect.Table(ctx, c.cfg.Parts().Client, form.Get("table"))
	if err != nil {
		return nil, err
	}
	catalogue, err := c.cfg.Parts().Transport.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	// The chain is followed through records of other rows and tables, step by step, each a
	// read of its own at the timestamp of the change: what was collected meanwhile ends it.
	chain := &inspect.Chain{
		Client: c.cfg.Parts().Client, Names: names, Catalogue: catalogue, Table: table,
		Limit: traceLimit, Depth: traceDepth,
	}
	if err := chain.Trace(ctx, row, column, at); err != nil {
		return nil, err
	}
	return map[string]any{
		"steps": chain.Steps, "cut": chain.Cut, "deep": chain.Deep, "wide": chain.Wide,
	}, nil
}

// timestampOf reads a timestamp; none is the latest.
func timestampOf(text string) (uint64, error) {
	if text == "" {
		return math.MaxUint64, nil
	}
	ts, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: at=%s: a timestamp is wanted", percolator.ErrInvalid, text)
	}
	return ts, nil
}

// lastHour is the lines over the last hour, of this node or, with scope=cluster, of all.
func (c *Console) lastHour(ctx context.Context, form url.Values) (any, error) {
	// A node's own points cost nothing. Those of all nodes are added up by their times, and
	// silent names the nodes whose part of the sum lacks.
	points, silent, nodes := c.cfg.Parts().Window.Points(), []string{}, 1
	if form.Get("scope") == "cluster" {
		var answers []telemetry.NodeRecent
		var all [][]*wire.Point
		answers, silent = c.cfg.Parts().Window.Everywhere(ctx, &wire.RecentRequest{Points: true})
		for _, a := range answers {
			all = append(all, a.Points)
		}
		points, nodes = recent.Together(all), len(answers)
	}
	list := make([]json.RawMessage, len(points))
	for i, p := range points {
		body, err := pbjson.Marshal(p)
		if err != nil {
			return nil, err
		}
		list[i] = body
	}
	return map[string]any{
		"every_ms": recent.Every.Milliseconds(), "points": list, "nodes": nodes, "silent": silent,
	}, nil
}

// heat is the heat map of the cluster, of the table with the number table, or of all: a
// column for each minute, a line for each range of keys, and in each field the operations
// that the tablets of the range have counted. A tablet whose leader has moved is counted
// by both nodes, each for its part of the time. The keys at which the ranges begin and end are
// left out for tables that are hidden from who asks.
func (c *Console) heat(ctx context.Context, form url.Values, v httpd.View) (any, error) {
	return c.asked(func(ctx context.Context, form url.Values) (any, error) {
		return c.readHeat(ctx, form, v)
	})(ctx, form)
}

func (c *Console) readHeat(ctx context.Context, form url.Values, v httpd.View) (any, error) {
	table, err := strconv.ParseUint(cmp.Or(form.Get("table"), "0"), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%w: table=%s: a table's number is wanted", percolator.ErrInvalid,
			form.Get("table"))
	}
	answers, silent := c.cfg.Parts().Window.Everywhere(ctx, &wire.RecentRequest{Heat: true})
	var all [][]*wire.HeatColumn
	for _, a := range answers {
		all = append(all, a.Heat)
	}
	grid := recent.NewGrid(all, uint32(table))
	for i := range grid.Ranges {
		r := &grid.Ranges[i]
		if v.Hides(r.FromTable) {
			r.FromRow = ""
		}
		if v.Hides(r.ToTable) {
			r.ToRow = ""
		}
	}
	return struct {
		*recent.Grid
		Silent []string `json:"silent"`
	}{grid, silent}, nil
}

// mailboxes are those of all nodes, each by itself: how batches are tuned is a node's own
// configuration, and a mean over nodes would hide the one that is behind. Counts go since
// the start of the process, and over the last lately_ms.
func (c *Console) mailboxes(ctx context.Context, _ url.Values) (any, error) {
	type nodeMailboxes struct {
		Node      uint64            `json:"node_id"`
		LatelyMS  int64             `json:"lately_ms"`
		Mailboxes []json.RawMessage `json:"mailboxes"`
	}
	answers, silent := c.cfg.Parts().Window.Everywhere(ctx, &wire.RecentRequest{Mailboxes: true})
	nodes := []nodeMailboxes{}
	for _, a := range answers {
		of := nodeMailboxes{Node: a.Node, LatelyMS: a.LatelyMs}
		for _, m := range a.Mailboxes {
			body, err := pbjson.Marshal(m)
			if err != nil {
				return nil, err
			}
			of.Mailboxes = append(of.Mailboxes, body)
		}
		nodes = append(nodes, of)
	}
	return map[string]any{"nodes": nodes, "silent": silent}, nil
}

// contended are the rows of the whole cluster where transactions stood in each other's way
// most in the last minutes, then those since the start, without those of tables that only
// some clients may use: see ungranted. A tablet remembers the few worst rows only, so the
// counts are a lower bound; each comes with how much too low it may be.
func (c *Console) contended(ctx context.Context, _ url.Values) (any, error) {
	answers, silent := c.cfg.Parts().Window.Everywhere(ctx, &wire.RecentRequest{Contended: true})
	var rows []*wire.ContendedRow
	var lately int64
	for _, a := range answers {
		lately = max(lately, a.LatelyMs)
		rows = append(rows, a.Contended...)
	}
	known, _ := c.cfg.Policy.LastRead()
	rows = slices.DeleteFunc(rows, func(r *wire.ContendedRow) bool {
		return c.cfg.Files != nil && slices.ContainsFunc(known.GetGrants(),
			func(g *pb.Grant) bool { return g.Table == r.Table })
	})
	slices.SortStableFunc(rows, func(a, b *wire.ContendedRow) int {
		return cmp.Or(cmp.Compare(b.Lately, a.Lately),
			cmp.Compare(b.Conflicts+b.Locked, a.Conflicts+a.Locked))
	})
	list := []json.RawMessage{}
	for _, r := range rows[:min(len(rows), maxContended)] {
		body, err := pbjson.Marshal(r)
		if err != nil {
			return nil, err
		}
		list = append(list, body)
	}
	return map[string]any{"rows": list, "silent": silent, "lately_ms": lately}, nil
}

// maxContended bounds the rows of one page.
const maxContended = 64

// timeOf is the timestamp of a time in Unix milliseconds; 0 for none.
func timeOf(text string) (mvcc.Timestamp, error) {
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 || ms > math.MaxInt64>>20 {
		return 0, fmt.Errorf("%w: at=%s: a time in Unix milliseconds is wanted",
			percolator.ErrInvalid, text)
	}
	return mvcc.TimestampAt(ms), nil
}

// errNoReader is why rows are not shown.
var errNoReader = errors.New("node: rows and values are shown to who has logged in, or, by a node " +
	"without certificates, on a loopback address: use `percolator scan` and `percolator history`")

// MayRead refuses who may not see rows and values and has not logged in. A node without
// certificates can't tell people apart, so it goes by the address that it listens at: who
// reaches a loopback address can read the node's files as well.
func (c *Console) MayRead(*http.Request) error {
	if c.cfg.Files == nil && config.IsLoopback(c.cfg.Addr) {
		return nil
	}
	return errNoReader
}

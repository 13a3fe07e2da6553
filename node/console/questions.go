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

	"google.golang.org/protobuf/proto"

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

// Questions of the console's pages: each is GET /api/v1/NAME with the parameters named below; its
// answer is encoded as JSON. Requests call them on their goroutines, also before the node serves;
// they keep no state. Rows are read through the node's own client, which sees a consistent snapshot
// whichever nodes lead the tablets. Figures of all nodes come from telemetry.Window, which polls
// each of them. Every answer is bounded: in rows by package inspect, in nodes by gossip.

// Questions returns the questions that the console answers. Data marks answers with rows, keys or
// values: httpd requires a login for them unless MayRead permits the request.
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

// ungranted refuses questions about tables with grants, since all users get the same answer. With
// all it refuses them if any table has grants, because the answer may contain rows of other tables.
func (c *Console) ungranted(answer func(context.Context, url.Values) (any, error),
	all bool) func(context.Context, url.Values) (any, error) {
	return func(ctx context.Context, form url.Values) (any, error) {
		if err := c.refuseGranted(form.Get("table"), all); err != nil {
			return nil, err
		}
		return answer(ctx, form)
	}
}

// refuseGranted returns an error if the table has grants or, with all, if any table has.
func (c *Console) refuseGranted(table string, all bool) error {
	// Use the policy that this node read last. As for clients, a new grant takes effect when the
	// nodes next read the policy. Without certificates users are indistinguishable and grants have
	// no effect.
	known, _ := c.cfg.Policy.LastRead()
	for _, g := range known.GetGrants() {
		if c.cfg.Files != nil && (all || g.TableName == table) {
			// Do not reveal the name of a table that was not requested.
			called := "some tables are"
			if g.TableName == table {
				called = fmt.Sprintf("table %q is", table)
			}
			return fmt.Errorf("%w: %s restricted to clients with a grant: use the command line with the "+
				"certificate of one", percolator.ErrInvalid, called)
		}
	}
	return nil
}

// asked wraps a question: it fails before the node serves, and marks errors caused by the request.
func (c *Console) asked(answer func(context.Context, url.Values) (any, error)) func(context.Context,
	url.Values) (any, error) {
	return func(ctx context.Context, form url.Values) (any, error) {
		if c.cfg.Parts() == nil {
			return nil, cmp.Or(c.cfg.Ready(ctx), ErrStarting)
		}
		out, err := answer(ctx, form)
		// The page shows these errors next to the form, and any other error as a failure of the
		// cluster.
		for _, own := range []error{percolator.ErrInvalid, percolator.ErrNoTable,
			percolator.ErrSnapshotTooOld, inspect.ErrNoChange, inspect.ErrNoObserver} {
			if errors.Is(err, own) {
				return nil, fmt.Errorf("%w: %w", httpd.ErrQuestion, err)
			}
		}
		return out, err
	}
}

// rows returns a page of a table's rows. Parameters: table, prefix, after, at. Rows and prefixes
// are in the form that httpd.Bytes parses, so that arbitrary bytes fit into an address. after is
// the last row of the previous page; at is a time in Unix milliseconds within the kept history.
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

// row returns all entries of one row: the kept versions of each cell, locks and notifications, as
// `percolator history` prints them. Parameters: table, row.
func (c *Console) row(ctx context.Context, form url.Values) (any, error) {
	row, err := httpd.Bytes(form.Get("row"))
	if err != nil {
		return nil, err
	}
	return inspect.ReadRow(ctx, c.cfg.Parts().Client, form.Get("table"), row)
}

// parked returns a page of an observer's parked notifications. Parameters: observer, after. The
// observer's table determines whether the user may see its rows.
func (c *Console) parked(ctx context.Context, form url.Values) (any, error) {
	of, err := inspect.ReadObserver(ctx, c.cfg.Parts().Client, form.Get("observer"))
	if err != nil {
		return nil, err
	}
	if c.refuseGranted(of.GetTableName(), false) != nil {
		return nil, fmt.Errorf("%w: observer %q is of a table restricted to clients with a grant: use the "+
			"command line with the certificate of one", percolator.ErrInvalid, of.GetName())
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

// commands formats the commands that the pages suggest.
var commands = inspect.Commands{Program: "percolator"}

// traceLimit bounds the steps of a trace, traceDepth the consecutive runs.
const traceLimit, traceDepth = 100, 16

// trace returns the chain of the newest change of a row, or of its column, at or before the
// timestamp at. Parameters: table, row, column, at. The answer reports truncation: after traceLimit
// steps, at traceDepth, or in rows with too many cells.
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
	names, err := inspect.ReadNames(ctx, c.cfg.Parts().Transport)
	if err != nil {
		return nil, err
	}
	table, err := names.Table(form.Get("table"))
	if err != nil {
		return nil, err
	}
	catalogue, err := c.cfg.Parts().Transport.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	// Each step is a separate read of records of other rows and tables at the change's timestamp: the
	// chain ends at collected records.
	chain := &inspect.Chain{
		Client: c.cfg.Parts().Client, Names: names, Catalogue: catalogue, Table: table,
		Limit: traceLimit, Depth: traceDepth,
	}
	if err := chain.Trace(ctx, row, column, at); err != nil {
		return nil, err
	}
	type step struct {
		*inspect.Step
		Notes []string `json:"notes"`
	}
	steps := []step{}
	for _, s := range chain.Steps {
		steps = append(steps, step{s, s.Notes()})
	}
	return map[string]any{"steps": steps, "notes": chain.Notes(), "next": chain.Next(commands)}, nil
}

// timestampOf parses a timestamp; empty means the latest.
func timestampOf(text string) (uint64, error) {
	if text == "" {
		return math.MaxUint64, nil
	}
	ts, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: at=%s: want a timestamp", percolator.ErrInvalid, text)
	}
	return ts, nil
}

// lastHour returns the points of the last hour, of this node or, with scope=cluster, of all nodes,
// and with observer=NAME those of this observer.
func (c *Console) lastHour(ctx context.Context, form url.Values) (any, error) {
	// This node's own points need no request. Those of all nodes are summed by time; silent names the
	// nodes that are missing from the sum.
	observer := form.Get("observer")
	points, silent, nodes := c.cfg.Parts().Window.Points(observer), []string{}, 1
	if form.Get("scope") == "cluster" {
		var answers []telemetry.NodeRecent
		var all [][]*wire.Point
		answers, silent = c.cfg.Parts().Window.Everywhere(ctx, &wire.RecentRequest{Points: true, Observer: observer})
		for _, a := range answers {
			all = append(all, a.Points)
		}
		points, nodes = recent.Together(all), len(answers)
	}
	list, err := marshalled(points)
	return map[string]any{
		"every_ms": recent.Every.Milliseconds(), "points": list, "nodes": nodes, "silent": silent,
	}, err
}

// marshalled encodes messages as JSON.
func marshalled[M proto.Message](messages []M) ([]json.RawMessage, error) {
	list := []json.RawMessage{}
	for _, m := range messages {
		body, err := pbjson.Marshal(m)
		if err != nil {
			return nil, err
		}
		list = append(list, body)
	}
	return list, nil
}

// heat returns the cluster's heat map, of one table or all: a column for each minute, a line for
// each range of keys, and in each cell the number of operations. A tablet whose leader has moved is
// counted by both nodes, each for its time. Keys that are hidden from the user are numbered.
func (c *Console) heat(ctx context.Context, form url.Values, v httpd.View) (any, error) {
	return c.asked(func(ctx context.Context, form url.Values) (any, error) {
		return c.readHeat(ctx, form, v)
	})(ctx, form)
}

func (c *Console) readHeat(ctx context.Context, form url.Values, v httpd.View) (any, error) {
	table, err := strconv.ParseUint(cmp.Or(form.Get("table"), "0"), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%w: table=%s: want a table's number", percolator.ErrInvalid,
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
		if r.FromRow != "" && v.HidesKeys(r.FromTable) {
			r.FromRow = pbjson.Bytes(keyNumber(i, len(grid.Ranges)+1))
		}
		if r.ToRow != "" && v.HidesKeys(r.ToTable) {
			r.ToRow = pbjson.Bytes(keyNumber(i+1, len(grid.Ranges)+1))
		}
	}
	return struct {
		*recent.Grid
		Silent     []string `json:"silent"`
		KeysHidden bool     `json:"keys_hidden"` // the keys of all tables are hidden
	}{grid, silent, v.HidesKeys(0)}, nil
}

// mailboxes returns the mailboxes of each node: batching is configured per node, and a mean over
// nodes would hide a slow one. Counts are since the start of the process and over the last
// lately_ms.
func (c *Console) mailboxes(ctx context.Context, _ url.Values) (any, error) {
	type nodeMailboxes struct {
		Node      uint64            `json:"node_id"`
		LatelyMS  int64             `json:"lately_ms"`
		Mailboxes []json.RawMessage `json:"mailboxes"`
	}
	answers, silent := c.cfg.Parts().Window.Everywhere(ctx, &wire.RecentRequest{Mailboxes: true})
	nodes := []nodeMailboxes{}
	for _, a := range answers {
		list, err := marshalled(a.Mailboxes)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, nodeMailboxes{a.Node, a.LatelyMs, list})
	}
	return map[string]any{"nodes": nodes, "silent": silent}, nil
}

// contended returns the rows of the cluster with the most conflicts in the last minutes, then those
// since the start, except rows of tables with grants: see ungranted. A tablet tracks a few rows
// only, so each count carries a bound of its error.
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
	list, err := marshalled(rows[:min(len(rows), maxContended)])
	return map[string]any{"rows": list, "silent": silent, "lately_ms": lately}, err
}

// maxContended bounds the rows of one page.
const maxContended = 64

// timeOf returns the timestamp of a time in Unix milliseconds; 0 for an empty text.
func timeOf(text string) (mvcc.Timestamp, error) {
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 || ms > math.MaxInt64>>20 {
		return 0, fmt.Errorf("%w: at=%s: want a time in Unix milliseconds",
			percolator.ErrInvalid, text)
	}
	return mvcc.TimestampAt(ms), nil
}

// errNoReader reports that rows require a login.
var errNoReader = errors.New("node: rows and values require a login or, on a node without certificates, " +
	"that its console listens on a loopback address (--http): log in, or use `percolator scan` and `percolator history`")

// MayRead returns an error if users who have not logged in may not read rows and values. A node
// without certificates cannot identify users, so it decides by its listening address: a user who
// can reach a loopback address can usually read the node's files too.
func (c *Console) MayRead(*http.Request) error {
	if c.cfg.Files == nil && config.IsLoopback(c.cfg.Addr) {
		return nil
	}
	return errNoReader
}

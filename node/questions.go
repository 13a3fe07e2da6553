package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/config"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// What the console's pages ask for beside how the cluster is. Requests call this on their
// goroutines, from before the node serves; nothing here keeps anything.

// questions are those that the node answers.
func (n *Node) questions() map[string]httpd.Question {
	return map[string]httpd.Question{
		"rows": {Data: true, Answer: n.asked(n.rows)},
		"row":  {Data: true, Answer: n.asked(n.row)},
	}
}

// asked adds to a question that it needs a node that serves, and which errors are the asker's.
func (n *Node) asked(answer func(context.Context, url.Values) (any, error)) func(context.Context,
	url.Values) (any, error) {
	return func(ctx context.Context, form url.Values) (any, error) {
		if !n.serving.Load() {
			return nil, cmp.Or(n.ready(ctx), errStarting)
		}
		out, err := answer(ctx, form)
		for _, own := range []error{percolator.ErrInvalid, percolator.ErrNoTable,
			percolator.ErrSnapshotTooOld, inspect.ErrNoChange} {
			if errors.Is(err, own) {
				return nil, fmt.Errorf("%w: %w", httpd.ErrQuestion, err)
			}
		}
		return out, err
	}
}

// rows is a page of a table's rows: table, prefix, after, at.
func (n *Node) rows(ctx context.Context, form url.Values) (any, error) {
	q := inspect.RowsQuery{Table: form.Get("table")}
	var err error
	if q.Prefix, err = bytesOf(form.Get("prefix")); err != nil {
		return nil, err
	}
	if form.Has("after") {
		after, err := bytesOf(form.Get("after"))
		if err != nil {
			return nil, err
		}
		q.After = &after
	}
	if q.At, err = timeOf(form.Get("at")); err != nil {
		return nil, err
	}
	return inspect.ReadRows(ctx, percolator.NewDB(n.client), q)
}

// row is all that one row holds: table, row.
func (n *Node) row(ctx context.Context, form url.Values) (any, error) {
	row, err := bytesOf(form.Get("row"))
	if err != nil {
		return nil, err
	}
	return inspect.ReadRow(ctx, n.client, form.Get("table"), row)
}

// bytesOf reads a row as the console writes it: as it is, or, where it begins with a quotation
// mark, as a string of Go, which can hold any bytes.
func bytesOf(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	raw, err := strconv.Unquote(text)
	if err != nil {
		return "", fmt.Errorf(`%w: %s: what begins with " is read as a string of Go, such as "\xff"`,
			percolator.ErrInvalid, text)
	}
	return raw, nil
}

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

// mayRead refuses who may not see rows and values.
func (n *Node) mayRead(*http.Request) error {
	if n.certs.files == nil && config.IsLoopback(n.cfg.HTTPAddr()) {
		return nil
	}
	return errNoReader
}

package httpd

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

//go:embed page.html
var pageText string

// pageTemplate is the page at /. html/template escapes whatever rows and observers are called.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"when": func(ms int64) string {
		return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 UTC")
	},
	"row": rowText,
	"stamp": func(ts uint64) string {
		if ts == 0 {
			return "—"
		}
		return time.UnixMilli(mvcc.Timestamp(ts).Millis()).UTC().Format("15:04:05.000")
	},
	"age":   age,
	"count": grouped,
	"size":  size,
	"state": observerState,
	"atOnce": func(o *pb.ObserverState) uint32 { // runs on all nodes
		return o.GetStatus().GetLimit() * uint32(max(1, len(o.GetNodes())))
	},
	"waiting": func(o *pb.ObserverState) uint64 {
		return o.Notifications + o.Intents
	},
}).Parse(pageText))

// view is what the page shows.
type view struct {
	Status    *pb.NodeStatusResponse
	Observers []*pb.ObserverState
	Fault     error // why the node is not ready
	Now       string
	Refresh   int // seconds between automatic reloads; 0: none

	tables map[uint32]string
}

// Place is where a tablet begins or ends, as the command line writes it: a table that is
// dropped, or still to be made, has a number only.
func (v view) Place(table uint32, row []byte) string {
	name, ok := v.tables[table]
	switch {
	case table == 0 && len(row) == 0:
		return "(meta)"
	case !ok:
		name = "table " + strconv.FormatUint(uint64(table), 10)
	}
	if len(row) == 0 {
		return name
	}
	return name + "/" + rowText(row)
}

// rowText is a row's or column's name for people.
func rowText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strconv.Quote(string(b))
}

// page writes the page at /.
func page(w http.ResponseWriter, req *http.Request, o Options) {
	ctx := req.Context()
	v := view{
		Status: o.Status(ctx), Fault: o.Ready(ctx), Now: time.Now().UTC().Format("15:04:05 UTC"),
		tables: map[uint32]string{},
	}
	if o.Cluster != nil {
		observers, tables := o.Cluster(ctx)
		v.Observers = observers
		for _, t := range tables {
			v.tables[t.Id] = t.Name
		}
	}
	if v.Observers == nil { // what this node runs is known always
		for _, s := range v.Status.GetObservers() {
			v.Observers = append(v.Observers, &pb.ObserverState{
				Info: &pb.ObserverInfo{
					Name: s.Name, TableName: s.Table, Column: s.Column, Weak: s.Weak,
					Paused: s.Paused,
				}, Linked: true, Status: s,
			})
		}
	}
	if n, err := strconv.Atoi(req.URL.Query().Get("refresh")); err == nil {
		v.Refresh = min(max(n, 0), 3600)
	}
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, v); err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body.Bytes())
}

// observerState is one word for how an observer stands: the command line's, in its order.
func observerState(o *pb.ObserverState) string {
	switch {
	case o.GetInfo().GetRetired():
		return "retiring"
	case o.GetInfo().GetPaused():
		return "paused"
	case !o.GetLinked():
		return "unlinked"
	}
	return "running"
}

// age is the time since a timestamp, by this node's clock; a dash for none.
func age(ts uint64) string {
	if ts == 0 {
		return "—"
	}
	d := max(0, time.Since(time.UnixMilli(mvcc.Timestamp(ts).Millis())))
	if d < time.Second {
		return "< 1 s"
	}
	return d.Round(time.Second).String()
}

// grouped writes a number with its thousands apart.
func grouped(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// size writes bytes in the unit that fits.
func size(bytes uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, u := float64(bytes), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

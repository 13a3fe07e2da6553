package httpd

import (
	"bytes"
	"html/template"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// pageTemplate is the page at /. html/template escapes whatever rows and observers are called.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"when": func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 UTC") },
	"row": func(b []byte) string {
		if utf8.Valid(b) {
			return string(b)
		}
		return strconv.Quote(string(b))
	},
}).Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>percolator node {{.Status.NodeId}}</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } th, td { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top }
thead th { border-bottom: 1px solid #8888; font-weight: 600 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.bad { color: #c22; font-weight: 600 } footer { margin-top: 2rem }
</style>
<h1>percolator node {{.Status.NodeId}}</h1>
<p>{{with .Fault}}<span class="bad">not ready: {{.}}</span>{{else}}ready{{end}}</p>
<table>
<tr><th>cluster<td>{{.Status.ClusterId}}
<tr><th>version<td>{{.Status.Version}}
<tr><th>clients<td>{{.Status.Listen}}
<tr><th>up since<td>{{when .Status.StartedUnixMs}}
<tr><th>oracle<td>at {{.Status.OracleLast}}; {{.Status.OracleServed}} timestamps in {{.Status.OracleBatches}} batches
<tr><th>log<td>{{.Status.LogRequests}} requests in {{.Status.LogBatches}} synced batches
</table>
<h2>Tablets</h2>
<table>
<thead><tr><th class="n">id<th>from<th>before<th>role<th class="n">applied<th class="n">locks<th class="n">reads<th class="n">mutations<th class="n">batches<th class="n">proposals</thead>
{{range .Status.Tablets}}<tr><td class="n">{{.Tablet.TabletId}}<td>{{.Tablet.StartTable}}/{{row .Tablet.StartRow}}
<td>{{if .Tablet.EndUnbounded}}the end{{else}}{{.Tablet.EndTable}}/{{row .Tablet.EndRow}}{{end}}
<td>{{if .Leader}}leader{{else}}replica{{end}}<td class="n">{{.AppliedIndex}}<td class="n">{{.Locks}}<td class="n">{{.Reads}}<td class="n">{{.Mutations}}<td class="n">{{.Batches}}<td class="n">{{.Proposals}}
{{else}}<tr><td colspan="10">none
{{end}}</table>
<h2>Observers</h2>
<table>
<thead><tr><th>name<th>column<th>kind<th class="n">runs<th class="n">commits<th class="n">conflicts<th class="n">failures<th class="n">parked<th class="n">running</thead>
{{range .Status.Observers}}<tr><td>{{.Name}}<td>{{.Table}}/{{row .Column}}<td>{{if .Weak}}weak{{else}}strong{{end}}
<td class="n">{{.Runs}}<td class="n">{{.Commits}}<td class="n">{{.Conflicts}}<td class="n">{{.Failures}}<td class="n">{{.Parked}}<td class="n">{{.Running}}
{{else}}<tr><td colspan="9">none linked
{{end}}</table>
<footer><a href="/api/v1/status">status as JSON</a> · <a href="/metrics">metrics</a> · <a href="/readyz">readiness</a></footer>
</html>
`))

// page writes the page at /; fault is why the node is not ready.
func page(w http.ResponseWriter, status *pb.NodeStatusResponse, fault error) {
	var body bytes.Buffer
	err := pageTemplate.Execute(&body, struct {
		Status *pb.NodeStatusResponse
		Fault  error
	}{status, fault})
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body.Bytes())
}

package main

import (
	"html/template"
	"net/http"

	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/examples/pipeline/vectors"
)

// onPage is the number of results of a page.
const onPage = 10

var results = template.Must(template.New("results").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>Search by similarity</title>
<style>body{font:16px sans-serif;max-width:50em;margin:2em auto}pre{white-space:pre-wrap}</style>
<form><input name="q" value="{{.Words}}" size="60" autofocus> <button>Search</button></form>
{{range .Hits}}<article><h3>{{.ID}} <small>{{printf "%.3f" .Score}}</small></h3><pre>{{.Text}}</pre></article>
{{else}}{{if .Words}}<p>Nothing is similar.</p>{{end}}{{end}}
</html>
`))

// page returns the handler of a page with the pieces nearest to the words of the parameter q.
func (s *services) page() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		shown := struct {
			Words string
			Hits  []vectors.Hit
		}{Words: r.FormValue("q")}
		if shown.Words != "" {
			var err error
			if shown.Hits, err = s.search(r.Context(), embedder.Embed(shown.Words), onPage); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = results.Execute(w, shown) // fails only if the client is gone
	})
	return mux
}

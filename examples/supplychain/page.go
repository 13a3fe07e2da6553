package main

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// contentPolicy allows text, and nothing else.
const contentPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// shown is the maximum number of advisories, or of names that an advisory reaches, on a page.
const shown = 1000

var pages = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>{{.Title}}</title>
<h1>{{.Title}}</h1>
{{range .Lines}}<p>{{if .Link}}<a href="/advisory/{{.Link}}">{{.Link}}</a> {{end}}{{.Text}}</p>
{{end}}</html>
`))

type view struct {
	Title string
	Lines []line
}

type line struct{ Link, Text string }

// serve serves the page at addr until ctx ends.
func serve(ctx context.Context, db *percolator.DB, addr string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("--page: %w", err)
	}
	server := &http.Server{
		Handler: handler(db), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // at once: requests only read
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler serves the list of advisories, and the affected packages of each. Pages reload every
// second.
func handler(db *percolator.DB) http.Handler {
	mux := http.NewServeMux()
	show := func(pattern string, fill func(*http.Request, percolator.Reader) (view, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			header := w.Header()
			header.Set("Content-Security-Policy", contentPolicy)
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Referrer-Policy", "no-referrer")
			header.Set("Content-Type", "text/html; charset=utf-8")
			header.Set("Refresh", "1")
			s, err := db.Snapshot(r.Context())
			if err == nil {
				defer func() { _ = s.Close() }()
				var v view
				if v, err = fill(r, s); err == nil {
					_ = pages.Execute(w, v) // fails only if the client has gone
					return
				}
			}
			http.Error(w, "the repository does not answer: "+err.Error(),
				http.StatusServiceUnavailable)
		})
	}
	show("GET /{$}", overview)
	show("GET /advisory/{id}", spreading)
	return mux
}

// overview lists the advisories.
func overview(r *http.Request, s percolator.Reader) (view, error) {
	v := view{Title: "Advisories"}
	rows := percolator.Rows(advisories.Column.Table).Limit(shown)
	for cell, err := range verdicts.Scan(r.Context(), s, rows) {
		if err != nil {
			return v, err
		}
		var name, id string
		if err := tuple.Unpack(cell.Row, &name, &id); err != nil {
			return v, err
		}
		p, err := affects.Progress(r.Context(), s, id)
		if err != nil {
			return v, err
		}
		v.Lines = append(v.Lines, line{Link: id, Text: fmt.Sprintf(
			"%s: %s; reaches %d names, %d waiting", name, cell.Value, p.Size, p.Waiting)})
	}
	return v, nil
}

// spreading shows what an advisory reaches.
func spreading(r *http.Request, s percolator.Reader) (view, error) {
	id := r.PathValue("id")
	v := view{Title: id}
	p, err := affects.Progress(r.Context(), s, id)
	if err != nil {
		return v, err
	}
	v.Lines = append(v.Lines, line{Text: fmt.Sprintf("It reaches %d names; %d are waiting.",
		p.Size, p.Waiting)})
	for reached, err := range affects.Reached(r.Context(), s, id) {
		if err != nil {
			return v, err
		}
		text := reached.Node
		if reached.Parent != "" {
			text += fmt.Sprintf(" through %s, depth %d", reached.Parent, reached.Depth)
		}
		v.Lines = append(v.Lines, line{Text: strings.TrimSpace(text)})
		if len(v.Lines) > shown {
			v.Lines = append(v.Lines, line{Text: "…"})
			break
		}
	}
	return v, nil
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/examples/pipeline/vectors"
	"github.com/percolator-go/percolator/recipes/calls"
)

// services are the services outside, as the observers and commands call them.
type services struct {
	embedder, index string        // URLs
	sweepEvery      time.Duration // period of the job that drops tombstones
	embedsApart     bool          // another program runs the observer embed
}

const (
	embedderAddr = "127.0.0.1:7830"
	indexAddr    = "127.0.0.1:7831"
)

// client bounds a call, body included.
var client = &http.Client{Timeout: 10 * time.Second}

// buy returns the vectors of texts.
func (s *services) buy(ctx context.Context, texts, keys []string) (answer [][]float32, err error) {
	err = call(ctx, http.MethodPost, s.embedder+"/embed", embedder.Question{Texts: texts, Keys: keys},
		&answer)
	if err == nil && len(answer) != len(texts) {
		err = fmt.Errorf("the embedder answered with %d vectors for %d texts", len(answer), len(texts))
	}
	return answer, err
}

// bill returns the embedder's bill.
func (s *services) bill(ctx context.Context) (b embedder.Bill, err error) {
	return b, call(ctx, http.MethodGet, s.embedder+"/bill", nil, &b)
}

// apply stores changes in the index.
func (s *services) apply(ctx context.Context, changes []vectors.Change) error {
	return call(ctx, http.MethodPost, s.index+"/apply", changes, nil)
}

// drop drops the tombstones of the index before a horizon.
func (s *services) drop(ctx context.Context, horizon percolator.Timestamp) error {
	return call(ctx, http.MethodPost, s.index+"/drop", uint64(horizon), nil)
}

// entries returns the entries and tombstones of the index.
func (s *services) entries(ctx context.Context) (all []vectors.Entry, err error) {
	return all, call(ctx, http.MethodGet, s.index+"/entries", nil, &all)
}

// search returns the entries nearest to a vector.
func (s *services) search(ctx context.Context, v []float32, count int) (hits []vectors.Hit, err error) {
	return hits, call(ctx, http.MethodPost, s.index+"/search", vectors.Query{Vector: v, Count: count},
		&hits)
}

// call calls a service. If the service is unavailable or refuses, the error makes the whole
// observer wait; if it rejects data that was read too early, the error makes the run read again.
func call(ctx context.Context, method, url string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return percolator.RetryAfter(err, 0)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := calls.Refusal(resp); err != nil {
		return err
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusConflict:
		return fmt.Errorf("%w: %s answered %s", percolator.ErrUnavailable, url, resp.Status)
	default:
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return percolator.RetryAfter(fmt.Errorf("read the answer of %s: %w", url, err), 0)
	}
	return nil
}

// serve serves a service at an address until ctx is canceled.
func serve(ctx context.Context, addr string, h http.Handler) (url string, done <-chan error, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { // until ctx ends
		err := server.Serve(listener)
		if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		ended <- err
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() }) // makes Serve return
	return "http://" + listener.Addr().String(), ended, nil
}

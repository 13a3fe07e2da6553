package vectors

import (
	"encoding/json"
	"errors"
	"net/http"
)

// maxRequest is the maximum size of a request, in bytes.
const maxRequest = 16 << 20

// Query is the body of POST /search.
type Query struct {
	Vector []float32 `json:"vector"`
	Count  int       `json:"count"`
}

// Handler returns the HTTP interface of the index. It answers ErrStale with 409, and other errors
// with 503.
func (x *Index) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apply", handle(func(changes []Change) (any, error) {
		return nil, x.Apply(changes)
	}))
	mux.HandleFunc("POST /drop", handle(func(horizon uint64) (any, error) {
		return nil, x.Drop(horizon)
	}))
	mux.HandleFunc("POST /search", handle(func(q Query) (any, error) {
		return x.Search(q.Vector, q.Count), nil
	}))
	mux.HandleFunc("GET /entries", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, x.Entries(), nil)
	})
	return mux
}

// handle returns a handler that calls do with a request's decoded body and answers with the result.
func handle[T any](do func(T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body T
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		result, err := do(body)
		answer(w, result, err)
	}
}

func answer(w http.ResponseWriter, result any, err error) {
	switch {
	case errors.Is(err, ErrStale):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		_ = json.NewEncoder(w).Encode(result) // fails only if the client is gone
	}
}

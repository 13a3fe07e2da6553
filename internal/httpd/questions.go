package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// What pages ask for beside how the cluster is, such as rows and the chain of a change: the
// node answers, and this file keeps the answers bounded and to whom they may go. It owns the
// room for questions under way; everything runs on the goroutine of the request.

// A Question is one kind of what pages ask for, at GET /api/v1/ and its name.
type Question struct {
	// Answer returns what is sent as JSON. An error that wraps ErrQuestion is the asker's
	// fault; others are the cluster's.
	Answer func(ctx context.Context, form url.Values) (any, error)
	// Data says that the answer has rows or values, which Options.MayRead decides about.
	Data bool
	// Seen takes the place of Answer where the answer depends on who asks: v is what may be told.
	Seen func(ctx context.Context, form url.Values, v View) (any, error)
}

// ErrQuestion is wrapped by errors of an Answer that asking again will not mend.
var ErrQuestion = errors.New("httpd: bad question")

const (
	// maxQuestions bounds the answers in the making at once: each may read many tablets.
	maxQuestions = 8
	// questionPatience is how long one may take.
	questionPatience = 5 * time.Second
)

// serveQuestions adds their paths, and that of the one that this package answers itself.
func serveQuestions(mux *http.ServeMux, o Options, w *clusterWatch, l *logins) {
	room := make(chan struct{}, maxQuestions)
	all := map[string]Question{"tablets": {Seen: w.answerTablets}}
	maps.Copy(all, o.Questions)
	for name, q := range all {
		mux.HandleFunc("GET /api/v1/"+name, ownSite(func(w http.ResponseWriter, req *http.Request) {
			if q.Data && o.MayRead != nil {
				if err := o.MayRead(req); err != nil {
					if err = l.instead(req, err); err != nil {
						refuse(w, err)
						return
					}
				}
			}
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
			default:
				w.Header().Set("Retry-After", "1")
				tell(w, http.StatusTooManyRequests, map[string]any{"code": CodeTooMany, "error": fmt.Sprintf(
					"httpd: %d questions are being answered: try again", maxQuestions)})
				return
			}
			ask := q.Answer
			if q.Seen != nil {
				ask = func(ctx context.Context, form url.Values) (any, error) { return q.Seen(ctx, form, l.viewOf(req)) }
			}
			answer(w, req, ask)
		}))
	}
}

// answer asks, and sends what comes.
func answer(w http.ResponseWriter, req *http.Request, ask func(context.Context, url.Values) (any, error)) {
	form, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid, err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), questionPatience)
	defer cancel()
	found, err := ask(ctx, form)
	var body []byte
	if err == nil {
		body, err = json.Marshal(found)
	}
	switch {
	case errors.Is(err, ErrQuestion):
		refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid, err.Error()})
	case err != nil:
		refuse(w, &Refusal{http.StatusServiceUnavailable, CodeUnavailable, err.Error()})
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	}
}

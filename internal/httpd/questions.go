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

// Questions: data of pages other than the cluster's status, such as rows and traces. The node
// answers them; this file limits concurrency and time, and authorizes readers. It owns the
// semaphore of questions in flight; handlers run on the goroutine of the request.

// Question is one kind of request of a page, GET /api/v1/NAME.
type Question struct {
	// Answer returns the value to send as JSON. An error that wraps ErrQuestion is the client's
	// fault (status 400); any other is the cluster's.
	Answer func(ctx context.Context, form url.Values) (any, error)
	// Data marks answers with rows or values, which require a login unless Options.MayRead permits
	// them.
	Data bool
	// Seen replaces Answer where the answer depends on the user: v is the user's view.
	Seen func(ctx context.Context, form url.Values, v View) (any, error)
}

// ErrQuestion is wrapped by errors of an Answer that a retry cannot fix.
var ErrQuestion = errors.New("httpd: invalid query")

const (
	// maxQuestions bounds the questions in flight: each may read many tablets.
	maxQuestions = 8
	// questionTimeout bounds one question.
	questionTimeout = 5 * time.Second
)

// serveQuestions registers the questions, and tablets, which this package answers itself.
func serveQuestions(mux *http.ServeMux, o Options, w *clusterWatch, l *logins) {
	room := make(chan struct{}, maxQuestions)
	all := map[string]Question{"tablets": {Seen: w.answerTablets}}
	maps.Copy(all, o.Questions)
	for name, q := range all {
		mux.HandleFunc("GET /api/v1/"+name, ownSite(func(w http.ResponseWriter, req *http.Request) {
			if q.Data && o.MayRead != nil {
				if err := o.MayRead(req); err != nil {
					if err = l.admitByLogin(req, err); err != nil {
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

// answer calls ask and sends its result.
func answer(w http.ResponseWriter, req *http.Request, ask func(context.Context, url.Values) (any, error)) {
	form, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid, err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), questionTimeout)
	defer cancel()
	found, err := ask(ctx, form)
	var body []byte
	if err == nil {
		body, err = json.Marshal(found)
	}
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		refuse(w, refusal)
	case errors.Is(err, ErrQuestion):
		refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid, err.Error()})
	case err != nil:
		refuse(w, &Refusal{http.StatusServiceUnavailable, CodeUnavailable, err.Error()})
	default:
		sendJSON(w, http.StatusOK, body)
	}
}

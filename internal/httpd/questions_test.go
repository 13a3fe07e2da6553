package httpd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/httpd"
)

// TestQuestions: a query returns the answer, or the reason for its absence and whose fault it is;
// data only with permission, and nothing for another site.
func TestQuestions(t *testing.T) {
	answers := func(ctx context.Context, form url.Values) (any, error) {
		switch form.Get("row") {
		case "wrong":
			return nil, fmt.Errorf("%w: <b>", httpd.ErrQuestion)
		case "away":
			return nil, errors.New("no quorum")
		}
		return map[string]string{"row": form.Get("row")}, ctx.Err()
	}
	asked := 0
	address := quick(t, httpd.Options{
		Questions: map[string]httpd.Question{"open": {Answer: answers}, "data": {
			Answer: func(ctx context.Context, form url.Values) (any, error) {
				asked++
				return answers(ctx, form)
			}, Data: true,
		}},
		MayRead: func(req *http.Request) error {
			if req.Header.Get("May") == "" {
				return errors.New("log in")
			}
			return nil
		},
	}, time.Minute, time.Hour)
	for _, tc := range []struct {
		path, header, value string
		status              int
		body                string
	}{
		{"open?row=%ff%3cb", "", "", 200, `{"row":"\ufffd\u003cb"}`},
		{"open?row=wrong", "", "", 400, `"code":"INVALID"`},
		{"open?row=%zz", "", "", 400, `"code":"INVALID"`},
		{"open?row=away", "", "", 503, `{"code":"UNAVAILABLE","error":"no quorum"}`},
		{"data?row=x", "", "", 401, `{"code":"LOGIN","error":"log in"}`},
		{"data?row=x", "May", "yes", 200, `{"row":"x"}`},
		{"open?row=x", "Sec-Fetch-Site", "cross-site", 403, ""},
		{"none", "", "", 404, ""},
	} {
		header := http.Header{}
		if tc.header != "" {
			header.Set(tc.header, tc.value)
		}
		resp := request(t.Context(), t, address+"/api/v1/"+tc.path, header)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != tc.status || !strings.Contains(string(body), tc.body) ||
			tc.body != "" && !json.Valid(body) {
			t.Errorf("%s with %s: %s %s", tc.path, tc.header, resp.Status, body)
		}
	}
	if asked != 1 {
		t.Errorf("data was read %d times", asked)
	}
}

// TestQuestionsAreBounded: concurrent queries beyond the bound are refused with a reason; a
// finished one frees its place.
func TestQuestionsAreBounded(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	address := quick(t, httpd.Options{Questions: map[string]httpd.Question{"q": {
		Answer: func(context.Context, url.Values) (any, error) {
			begun <- true
			<-end
			return "done", nil
		},
	}}}, time.Minute, time.Hour)
	answered := make(chan error, httpd.MaxQuestions)
	for range httpd.MaxQuestions {
		go func() {
			resp, err := http.Get(address + "/api/v1/q")
			if err == nil {
				err = resp.Body.Close()
			}
			answered <- err
		}()
		<-begun
	}
	resp := request(t.Context(), t, address+"/api/v1/q", nil)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %s", resp.Status)
	}
	close(end)
	for range httpd.MaxQuestions {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	go func() { <-begun }()
	if resp := request(t.Context(), t, address+"/api/v1/q", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("after them: %s", resp.Status)
	}
}

package calls

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// Refusal returns the error for an answer by which an HTTP service refuses a call for now: a
// status of 429, 502, 503 or 504. The error is one of percolator.RetryAfter with the time of the
// header Retry-After, in seconds (at most an hour) or as a date, or 0 without one. It returns nil
// for any other status.
func Refusal(answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
	default:
		return nil
	}
	var wait time.Duration
	header := answer.Header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(header, 64); err == nil && seconds > 0 {
		wait = time.Duration(min(seconds, time.Hour.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(header); err == nil {
		wait = time.Until(at)
	}
	return percolator.RetryAfter(fmt.Errorf("calls: the service answered %s", answer.Status), wait)
}

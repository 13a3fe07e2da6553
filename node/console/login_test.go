package console

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestTokensExpire: a token is valid until its expiry, and an invalid one is not looked up at all.
func TestTokensExpire(t *testing.T) {
	secret, hash := certs.NewToken()
	token := &pb.Token{Name: "ann", Role: "operator", ExpiresUnixMs: 5000}
	asked := 0
	var fail error
	find := func(_ context.Context, h []byte) (*pb.Token, error) {
		asked++
		if string(h) != string(hash) {
			return nil, fail
		}
		return token, fail
	}
	status := func(token string, ms int64) int {
		user, err := identify(t.Context(), find, token, time.UnixMilli(ms))
		var refusal *httpd.Refusal
		switch {
		case errors.As(err, &refusal):
			return refusal.Status
		case err != nil || user.Name != "ann" || user.Role != "operator" || !user.MayAct:
			t.Errorf("%+v, %v", user, err)
		}
		return http.StatusOK
	}
	other, _ := certs.NewToken()
	for _, c := range []struct {
		token string
		ms    int64
		want  int
	}{{secret, 4999, 200}, {secret, 5000, 401}, {secret, 9999, 401}, {other, 0, 401}} {
		if got := status(c.token, c.ms); got != c.want {
			t.Errorf("EXPIRED: at %d of 5000 the token is answered %d, not %d", c.ms, got, c.want)
		}
	}
	before := asked
	for _, bad := range []string{"x", secret + "x", secret[:len(secret)-1], "PERCOLATOR_" + secret[11:]} {
		if got := status(bad, 0); got != 401 {
			t.Errorf("%s: %d", bad, got)
		}
	}
	if asked != before {
		t.Error("what is no token was looked up")
	}
	fail = txn.ErrUnavailable
	if got := status(secret, 0); got != 503 {
		t.Errorf("meta is away: %d", got)
	}
}

// TestRefusalsOfCalls: the page distinguishes the caller's errors from unavailability.
func TestRefusalsOfCalls(t *testing.T) {
	for code, want := range map[pb.Error_Code]int{
		pb.Error_CODE_INVALID: 400, pb.Error_CODE_NO_TABLE: 400, pb.Error_CODE_TOO_LARGE: 400,
		pb.Error_CODE_PERMISSION: 403, pb.Error_CODE_UNAVAILABLE: 503, pb.Error_CODE_OVERLOADED: 503,
	} {
		var r *httpd.Refusal
		if !errors.As(asRefusal(&txn.ServerError{Code: code}), &r) || r.Status != want {
			t.Errorf("%v: %v", code, r)
		}
	}
	var r *httpd.Refusal
	if !errors.As(asRefusal(context.DeadlineExceeded), &r) || r.Status != 503 {
		t.Errorf("%v", r)
	}
	if asRefusal(nil) != nil {
		t.Error("nothing is refused")
	}
}

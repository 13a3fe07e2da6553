package node_test

import (
	"log/slog"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/browser"
)

// TestConsoleTakesLogins: on a cluster with a login over HTTP, the console displays the login page,
// then the cluster, and the login page again after the token is revoked.
func TestConsoleTakesLogins(t *testing.T) {
	b := browser.Start(t)
	ctx := within(t, time.Minute)
	n := open(t, "", func(c *node.Config) {
		c.HTTP, c.HTTPLogin, c.Logger = "127.0.0.1:0", true, slog.New(slog.DiscardHandler)
	})
	v := visitor{t, b, "http://" + n.HTTPAddr() + "/"}
	v.logsIn(ctx, n)
	v.goes("nodes", "round trip")
	if _, err := handle.Client(n.DB()).Admin().RevokeToken(ctx, &pb.RevokeTokenRequest{
		Name: "ann",
	}); err != nil {
		t.Fatal(err)
	}
	v.sees("the page to log in", "Reading needs no login")
}

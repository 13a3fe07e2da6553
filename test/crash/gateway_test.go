package crash

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/ports"
	"github.com/percolator-go/percolator/node"
)

// childGateway is the address of the gateway that the child process serves.
const childGateway = "PERCOLATOR_CRASH_GATEWAY"

// gatewayChild serves a gateway until it is killed.
func gatewayChild(dir string) error {
	ctx := context.Background()
	_, err := openWith(ctx, dir, func(cfg *node.Config) { cfg.Gateway = os.Getenv(childGateway) })
	if err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// counting is a client that increments a counter through the gateway of a node that is killed.
type counting struct {
	client gw.GatewayClient
	failed atomic.Int64 // requests without an answer
	found  atomic.Int64 // of them, those whose repetition found that they had committed
}

// TestKillCountsKeysOnce: while the node is killed and restarted, clients that repeat each request with its
// idempotency key until it is answered count exactly.
func TestKillCountsKeysOnce(t *testing.T) {
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(*seed, 3))
	one := startGateway(t, dir, addr)
	http1 := &http.Client{Timeout: 10 * time.Second}
	defer http1.CloseIdleConnections()
	c := &counting{client: gw.NewGatewayClient(http1, "http://"+addr, connect.WithProtoJSON())}
	if _, err := gw.NewControlClient(http1, "http://"+addr).CreateTable(t.Context(),
		connect.NewRequest(&gw.CreateTableRequest{Table: &gw.TableSpec{Name: "t"}})); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wait sync.WaitGroup
	var committed atomic.Int64
	for w := range 4 {
		wait.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if c.increment(t.Context(), fmt.Sprint(w, "-", i)) {
					committed.Add(1)
				}
			}
		})
	}
	for range *kills {
		<-time.After(time.Duration(rng.IntN(700)) * time.Millisecond)
		if err := kill(one.Process); err != nil {
			t.Fatal(err)
		}
		_ = one.Wait()
		one = startGateway(t, dir, addr)
	}
	stop()
	wait.Wait()
	value, err := c.value(t.Context())
	if err != nil || int64(value) != committed.Load() {
		t.Errorf("COMMITTED-TWICE: the counter is at %d after %d increments, %v", value, committed.Load(), err)
	}
	t.Logf("%d increments, %d requests without an answer, %d of them had committed", committed.Load(), c.failed.Load(),
		c.found.Load())
	if c.failed.Load() == 0 {
		t.Error("no request was interrupted")
	}
}

// startGateway starts a child process and waits until it serves. The test kills it.
func startGateway(t *testing.T, dir, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childGateway+"="+addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = kill(cmd.Process)
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the node said: %q, %v", line, err)
	}
	return cmd
}

// value returns the counter.
func (c *counting) value(ctx context.Context) (int, error) {
	resp, err := c.client.Read(ctx, connect.NewRequest(&gw.ReadRequest{Keys: []*gw.Key{{
		Table: "t", RowAs: &gw.Key_Row{Row: "r"}, ColumnAs: &gw.Key_Column{Column: "c"},
	}}}))
	if err != nil || !resp.Msg.Cells[0].Found {
		return 0, err
	}
	return strconv.Atoi(resp.Msg.Cells[0].GetValue())
}

// increment adds 1 to the counter unless another client has changed it, and reports whether it
// added 1.
func (c *counting) increment(ctx context.Context, key string) bool {
	before, err := c.value(ctx)
	if err != nil {
		return false
	}
	row, column := "r", "c"
	condition := &gw.Condition{
		Table: "t", RowAs: &gw.Condition_Row{Row: row}, ColumnAs: &gw.Condition_Column{Column: column},
		Holds: &gw.Condition_Exists{},
	}
	if before > 0 {
		condition.Holds = &gw.Condition_Equals{Equals: strconv.Itoa(before)}
	}
	req := &gw.TransactRequest{
		Conditions: []*gw.Condition{condition}, IdempotencyKey: key,
		Writes: []*gw.CellWrite{{
			Table: "t", RowAs: &gw.CellWrite_Row{Row: row}, ColumnAs: &gw.CellWrite_Column{Column: column},
			ValueAs: &gw.CellWrite_Value{Value: strconv.Itoa(before + 1)},
		}},
	}
	for failed := false; ; failed = true {
		resp, err := c.client.Transact(ctx, connect.NewRequest(req))
		if err == nil {
			if failed && resp.Msg.Repeated {
				c.found.Add(1)
			}
			return resp.Msg.Committed
		}
		c.failed.Add(1)
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}

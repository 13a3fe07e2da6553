package httpd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/test/browser"
)

const manyTablets = 5000

// manyRow returns the row at which a tablet of thousands begins.
func manyRow(i int) string { return fmt.Sprintf("row/%06d", i) }

// thousands is a cluster of three nodes with three replicas of each of many tablets, of which the
// first has id 1001. Load increases and size decreases with the id. The one in the middle has no
// leader, and those at both ends have locks.
func thousands() (*pb.ClusterStatusResponse, []*pb.Table) {
	status := &pb.ClusterStatusResponse{NodeId: 1, UnixMs: time.Now().UnixMilli()}
	for node := range uint64(3) {
		node++
		status.Nodes = append(status.Nodes, &pb.NodeReport{
			Node:   &pb.Node{NodeId: node, Alive: true, Listen: fmt.Sprintf("db%d:7800", node)},
			Status: &pb.NodeStatusResponse{NodeId: node},
		})
	}
	for i := range manyTablets {
		d := &pb.TabletDescriptor{
			TabletId: uint64(1001 + i), StartTable: 16, StartRow: []byte(manyRow(i)), EndTable: 16,
			EndRow: []byte(manyRow(i + 1)), Epoch: 7,
		}
		for _, n := range status.Nodes {
			d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: n.Node.NodeId, NodeId: n.Node.NodeId})
		}
		for k, n := range status.Nodes {
			t := &pb.StatusResponse{Tablet: d, NodeId: n.Node.NodeId, Term: 9}
			if k == i%3 && i != manyTablets/2 {
				t.Leader, t.Load, t.SizeBytes = true, uint64(i), uint64(manyTablets-i)<<20
				if i == 0 || i == manyTablets-1 {
					t.Locks, t.OldestLockTs = 3, uint64(manyTablets-i)
				}
			}
			n.Status.Tablets = append(n.Status.Tablets, t)
		}
	}
	return status, []*pb.Table{{Id: 16, Name: "docs"}, {Id: 17, Name: "docs/new"}}
}

// tabletsPage is a page of tablets as a program decodes it.
type tabletsPage struct {
	Tablets, Led, Found, Page int
	Locks                     uint64
	List                      []struct {
		ID     int    `json:"tablet_id"`
		Leader uint64 `json:"leader_node"`
		Start  string `json:"start_row"`
		Load   int    `json:"load"`
	}
	Error string
}

func askTablets(t *testing.T, address, query string) (code int, bytes int, page tabletsPage) {
	t.Helper()
	resp := request(t.Context(), t, address+"/api/v1/tablets?"+query, nil)
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &page)
	}
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return resp.StatusCode, len(body), page
}

// TestThousandsOfTablets: stream events, and answers with tablets, stay small for any number of
// tablets; they contain the totals, and each tablet can be found by paging in any order, by its id,
// and by a row in it.
func TestThousandsOfTablets(t *testing.T) {
	status, tables := thousands()
	address := quick(t, httpd.Options{
		Cluster: func(context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error) {
			return status, tables, nil
		},
	}, time.Minute, time.Hour)
	const mostEvent, mostPage = 32 << 10, 128 << 10
	stream := request(t.Context(), t, address+"/api/v1/cluster/stream", nil)
	events := bufio.NewReader(stream.Body)
	for {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(line, "data: ") {
			continue
		}
		if len(line) > mostEvent {
			t.Errorf("an event has %d bytes", len(line))
		}
		if want := `"totals":{"tablets":5000,"led":4999,"locks":6,"garbage":0}`; !strings.Contains(line, want) {
			t.Errorf("no %s in %.500s", want, line)
		}
		break
	}
	whole := request(t.Context(), t, address+"/api/v1/cluster", nil)
	var all struct {
		Status struct {
			Nodes []struct{ Status struct{ Tablets []any } }
		}
	}
	if err := json.NewDecoder(whole.Body).Decode(&all); err != nil ||
		len(all.Status.Nodes[2].Status.Tablets) != manyTablets {
		t.Errorf("who asks for the whole cluster gets %d tablets a node: %v",
			len(all.Status.Nodes[2].Status.Tablets), err)
	}

	for by, first := range map[string]int{"range": 1001, "load": 6000, "size": 1001,
		"trouble": 1001 + manyTablets/2, "lock": 6000} {
		seen := map[int]bool{}
		for skip := 0; ; {
			_, n, page := askTablets(t, address, fmt.Sprintf("by=%s&skip=%d", by, skip))
			if n > mostPage || page.Found != manyTablets || len(page.List) > page.Page {
				t.Fatalf("by %s: %d bytes, %d of %d", by, n, len(page.List), page.Found)
			}
			if len(page.List) == 0 {
				break
			}
			if skip == 0 && page.List[0].ID != first {
				t.Errorf("by %s the first is %+v", by, page.List[0])
			}
			for _, tablet := range page.List {
				seen[tablet.ID] = true
			}
			skip += len(page.List)
		}
		if len(seen) != manyTablets {
			t.Errorf("by %s: %d tablets in all pages", by, len(seen))
		}
	}
	for query, want := range map[string]int{
		"find=4321":              4321,
		"find=docs/row/002345":   1001 + 2345,
		"find=docs/row/002345/x": 1001 + 2345,
		`find=docs/` + url.QueryEscape(`"row/002345\xff"`): 1001 + 2345,
		"by=lock&locked=": 6000,
	} {
		if _, _, page := askTablets(t, address, query); len(page.List) == 0 || page.List[0].ID != want {
			t.Errorf("%s: %+v", query, page.List)
		}
	}
	for query, found := range map[string]int{
		"find=docs": manyTablets, "find=docs/new": 0, "locked=": 2, "find=docs/row/000000": 1, "find=7": 0,
	} {
		if _, _, page := askTablets(t, address, query); page.Found != found {
			t.Errorf("%s: %d found, not %d", query, page.Found, found)
		}
	}
	for _, query := range []string{"find=none", "by=colour", "skip=-1", "skip=x", `find=docs/%22x`} {
		if code, _, page := askTablets(t, address, query); code != http.StatusBadRequest || page.Error == "" {
			t.Errorf("%s: %d %+v", query, code, page)
		}
	}
}

// TestThousandsOfTabletsInABrowser: any tablet can be found by keyboard.
func TestThousandsOfTabletsInABrowser(t *testing.T) {
	b := browser.Start(t)
	status, tables := thousands()
	address := quick(t, httpd.Options{
		Cluster: func(context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error) {
			return status, tables, nil
		},
	}, time.Minute, 200*time.Millisecond)
	sees := func(what, text string) {
		t.Helper()
		b.Await(what, fmt.Sprintf("document.body.innerText.includes(%q)", text))
	}
	reach := func(key string) {
		t.Helper()
		for range 100 {
			if b.Tab(); browser.Eval[string](b, `document.activeElement.dataset.key ?? ""`) == key {
				return
			}
		}
		t.Fatalf("%q is not reached", key)
	}
	b.Open(address + "/#/overview")
	sees("the totals", "4\u202f999 of 5\u202f000")
	b.Open(address + "/#/tablets")
	sees("the busiest", "docs/row/004999")
	sees("how many there are", "1 to 200 of 5\u202f000")
	reach("next tablets")
	b.Press(browser.Enter)
	sees("the next ones", "201 to 400 of 5\u202f000")
	sees("a tablet of theirs", "docs/row/004700")
	reach("find")
	b.Press("docs/row/000777" + browser.Enter)
	sees("what was looked for", "1 to 1 of 1, matching")
	sees("its id", "1778")
	b.Screenshot("tablet-found")
	b.Open(address + "/#/tablets?by=trouble")
	sees("the one without a leader", "no leader")
	b.Open(address + "/#/locks")
	sees("both tablets with locks", "docs/row/004999")
	sees("both tablets with locks", "docs/row/000000")
	if seen := b.Alarms(); len(seen) > 0 {
		for _, alarm := range seen {
			if !strings.Contains(alarm, "status of 404") { // history is not available here
				t.Errorf("the browser complains: %s", alarm)
			}
		}
	}
}

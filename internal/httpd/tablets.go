package httpd

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/wire"
)

// Pages of tablets. A cluster may have thousands, so the event stream carries totals only, and
// /api/v1/tablets returns one sorted or filtered page. It reads the clusterWatch's last status,
// which is immutable, and keeps no state.

// tabletPage is the maximum number of tablets in one answer.
const tabletPage = 200

// tabletTotals has the sums over all tablets.
type tabletTotals struct {
	Tablets int    `json:"tablets"`
	Led     int    `json:"led"`     // by nodes that answer
	Locks   uint64 `json:"locks"`   // of the led ones
	Garbage uint64 `json:"garbage"` // of the led ones: entries that wait to be collected
}

// tablet merges the nodes' statuses of one tablet.
type tablet struct {
	*pb.StatusResponse        // of its leader, else of the replica with the highest term
	away               uint64 // replicas on nodes that do not answer
}

// tabletsOf merges the nodes' statuses, in range order.
func tabletsOf(status *pb.ClusterStatusResponse) (list []tablet, totals tabletTotals) {
	told, answers := map[uint64]*pb.StatusResponse{}, map[uint64]bool{}
	for _, n := range status.GetNodes() {
		answers[n.GetNode().GetNodeId()] = n.GetStatus() != nil
		for _, t := range n.GetStatus().GetTablets() {
			id := t.GetTablet().GetTabletId()
			if known := told[id]; known == nil || tellsMore(t, known) {
				told[id] = t
			}
		}
	}
	for _, t := range told {
		list = append(list, tablet{StatusResponse: t})
		for _, r := range t.GetTablet().GetReplicas() {
			if !answers[r.GetNodeId()] {
				list[len(list)-1].away++
			}
		}
		totals.Tablets++
		if t.GetLeader() {
			totals.Led++
			totals.Locks += t.GetLocks()
			totals.Garbage += t.GetGarbage()
		}
	}
	slices.SortFunc(list, func(a, b tablet) int {
		x, y := wire.StartOf(a.Tablet), wire.StartOf(b.Tablet)
		return cmp.Or(cmp.Compare(x.Table, y.Table), cmp.Compare(x.Row, y.Row),
			cmp.Compare(a.Tablet.GetTabletId(), b.Tablet.GetTabletId()))
	})
	return list, totals
}

// tellsMore reports whether replica a's status takes precedence over b's.
func tellsMore(a, b *pb.StatusResponse) bool {
	if a.GetLeader() != b.GetLeader() {
		return a.GetLeader()
	}
	return cmp.Or(cmp.Compare(a.GetTerm(), b.GetTerm()),
		cmp.Compare(a.GetTablet().GetEpoch(), b.GetTablet().GetEpoch())) > 0
}

// trouble returns the severity of a tablet's problems; 0 means none.
func (t tablet) trouble() uint64 {
	if !t.GetLeader() {
		return 1<<32 + t.away
	}
	return t.away
}

// tabletOrders maps the names of orders to their keys: descending, then by range.
var tabletOrders = map[string]func(tablet) uint64{
	"range":   func(tablet) uint64 { return 0 },
	"load":    func(t tablet) uint64 { return t.GetLoad() },
	"size":    func(t tablet) uint64 { return t.GetSizeBytes() },
	"trouble": tablet.trouble,
	"lock": func(t tablet) uint64 { // the oldest
		if t.GetOldestLockTs() == 0 {
			return min(t.GetLocks(), 1) // locks of unknown age: after those of known age
		}
		return math.MaxUint64 - t.GetOldestLockTs()
	},
}

// tabletJSON is the JSON of a tablet.
type tabletJSON struct {
	ID           uint64        `json:"tablet_id"`
	StartTable   uint32        `json:"start_table"`
	StartRow     pbjson.Bytes  `json:"start_row"`
	EndTable     uint32        `json:"end_table"`
	EndRow       pbjson.Bytes  `json:"end_row"`
	EndUnbounded bool          `json:"end_unbounded"`
	Leader       uint64        `json:"leader_node"` // 0: none that answers
	Replicas     []replicaJSON `json:"replicas"`
	Size         uint64        `json:"size_bytes"`
	Load         uint64        `json:"load"`
	Locks        uint64        `json:"locks"`
	Garbage      uint64        `json:"garbage"`
	Applied      uint64        `json:"applied_index"`
	OldestLock   uint64        `json:"oldest_lock_ts"`
}

type replicaJSON struct {
	Node     uint64 `json:"node_id"`
	Learner  bool   `json:"learner"`
	Snapshot bool   `json:"snapshot"` // the replica needs one
}

// tabletsAnswer is a page of tablets. LargestLoad and LargestSize are over all tablets, whatever
// the request selects.
type tabletsAnswer struct {
	tabletTotals
	Found       int          `json:"found"` // number of tablets that match the request
	Skipped     int          `json:"skipped"`
	Page        int          `json:"page"` // maximum number of tablets in one answer
	LargestLoad uint64       `json:"largest_load"`
	LargestSize uint64       `json:"largest_size"`
	KeysHidden  bool         `json:"keys_hidden"` // rows are numbers in place of keys
	List        []tabletJSON `json:"list"`
}

// answerTablets returns a page of tablets. Parameters: by, the order; skip, the number of tablets to
// skip; locked, only tablets with locks; find, only the tablet with an id, the tablets of a table,
// or the tablet of a row, written TABLE/ROW.
func (w *clusterWatch) answerTablets(ctx context.Context, form url.Values, v View) (any, error) {
	by := tabletOrders[cmp.Or(form.Get("by"), "range")]
	skip, err := strconv.Atoi(cmp.Or(form.Get("skip"), "0"))
	if by == nil || err != nil || skip < 0 {
		return nil, fmt.Errorf("%w: by=%s skip=%s: want range, load, size, trouble or lock, "+
			"and a number", ErrQuestion, form.Get("by"), form.Get("skip"))
	}
	news, err := w.now(ctx, questionTimeout)
	if err != nil {
		return nil, err
	}
	news = w.seen(news, v)
	list, totals := tabletsOf(news.status)
	out := tabletsAnswer{tabletTotals: totals, Skipped: skip, Page: tabletPage, KeysHidden: v.HidesKeys(0), List: []tabletJSON{}}
	for _, t := range list {
		out.LargestLoad = max(out.LargestLoad, t.GetLoad())
		out.LargestSize = max(out.LargestSize, t.GetSizeBytes())
	}
	holds, err := finder(form.Get("find"), news.tables, v)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(t tablet) bool {
		return !holds(t.Tablet) || form.Has("locked") && t.GetLocks() == 0
	})
	slices.SortStableFunc(list, func(a, b tablet) int { return cmp.Compare(by(b), by(a)) })
	out.Found = len(list)
	list = list[min(skip, len(list)):]
	for _, t := range list[:min(tabletPage, len(list))] {
		out.List = append(out.List, t.json())
	}
	return out, nil
}

func (t tablet) json() tabletJSON {
	d := t.Tablet
	out := tabletJSON{
		ID: d.GetTabletId(), StartTable: d.GetStartTable(), StartRow: pbjson.Bytes(d.GetStartRow()),
		EndTable: d.GetEndTable(), EndRow: pbjson.Bytes(d.GetEndRow()),
		EndUnbounded: d.GetEndUnbounded(), Replicas: []replicaJSON{},
		Size: t.GetSizeBytes(), Load: t.GetLoad(), Locks: t.GetLocks(), Garbage: t.GetGarbage(),
		Applied: t.GetAppliedIndex(), OldestLock: t.GetOldestLockTs(),
	}
	if t.GetLeader() {
		out.Leader = t.GetNodeId()
	}
	for _, r := range d.GetReplicas() {
		behind := slices.ContainsFunc(t.GetReplicas(), func(p *pb.ReplicaProgress) bool {
			return p.GetReplica().GetReplicaId() == r.GetReplicaId() && p.GetSnapshot()
		})
		out.Replicas = append(out.Replicas, replicaJSON{r.GetNodeId(), r.GetLearner(), behind})
	}
	return out
}

// finder returns the filter for a search text: empty for all tablets, an id, a table, or TABLE/ROW.
// Dropped tables are not found. A row is refused if its table's keys are hidden.
func finder(text string, tables []*pb.Table, v View) (func(*pb.TabletDescriptor) bool, error) {
	if text == "" {
		return func(*pb.TabletDescriptor) bool { return true }, nil
	}
	if id, err := strconv.ParseUint(text, 10, 64); err == nil {
		return func(d *pb.TabletDescriptor) bool { return d.GetTabletId() == id }, nil
	}
	// Names may contain slashes: the longest matching one wins.
	var found *pb.Table
	for _, t := range tables {
		rest, ok := strings.CutPrefix(text, t.GetName())
		if ok && (rest == "" || rest[0] == '/') && t.GetDroppedTs() == 0 &&
			len(t.GetName()) >= len(found.GetName()) {
			found = t
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %q is neither the id of a tablet, nor TABLE or TABLE/ROW with a "+
			"table that there is", ErrQuestion, text)
	}
	span := mvcc.Span{Table: mvcc.TableID(found.GetId())}
	if row, ok := strings.CutPrefix(text[len(found.GetName()):], "/"); ok {
		if v.HidesKeys(found.GetId()) { // a search by bisection would find the keys
			return nil, &Refusal{http.StatusUnauthorized, CodeLogin, "log in to find the tablet of a row"}
		}
		row, err := Bytes(row)
		if err != nil {
			return nil, err
		}
		span.Start, span.End, span.HasEnd = row, row+"\x00", true
	}
	return func(d *pb.TabletDescriptor) bool {
		_, holds := wire.Clip(d, span)
		return holds
	}, nil
}

// Bytes parses a row or column as the console writes it: unchanged or, if it begins with a quotation
// mark, as a Go string literal, which can hold any bytes.
func Bytes(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	raw, err := strconv.Unquote(text)
	if err != nil {
		return "", fmt.Errorf(`%w: %s: what begins with " is read as a string of Go, such as "\xff"`,
			ErrQuestion, text)
	}
	return raw, nil
}

// withoutTablets returns a copy of the status without the nodes' tablets. The messages are shared,
// so none is changed.
func withoutTablets(status *pb.ClusterStatusResponse) *pb.ClusterStatusResponse {
	out := &pb.ClusterStatusResponse{}
	shallow(out.ProtoReflect(), status.ProtoReflect())
	out.Nodes = make([]*pb.NodeReport, len(status.GetNodes()))
	for i, n := range status.GetNodes() {
		out.Nodes[i] = &pb.NodeReport{}
		shallow(out.Nodes[i].ProtoReflect(), n.ProtoReflect())
		if n.Status != nil {
			out.Nodes[i].Status = &pb.NodeStatusResponse{}
			shallow(out.Nodes[i].Status.ProtoReflect(), n.Status.ProtoReflect())
			out.Nodes[i].Status.Tablets = nil
		}
	}
	return out
}

// shallow copies the fields of a message to another, which then shares its submessages.
func shallow(to, from protoreflect.Message) {
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
}

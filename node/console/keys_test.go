package console

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/rpc"
)

// TestKeylessView: a user without a login sees numbers of keys, which sort as the keys do, in place of
// all rows; the shared message stays as it is.
func TestKeylessView(t *testing.T) {
	tablet := func(start, end string) *pb.StatusResponse {
		return &pb.StatusResponse{SizeKey: []byte("secret"), LoadKey: []byte("secret"), Tablet: &pb.TabletDescriptor{
			StartTable: 16, StartRow: []byte(start), EndTable: 16, EndRow: []byte(end), EndUnbounded: end == "",
		}}
	}
	m := &pb.NodeStatusResponse{
		Tablets:   []*pb.StatusResponse{tablet("ann", "bob"), tablet("bob", "")},
		Observers: []*pb.ObserverStatus{{Rows: []*pb.ObserverRow{{Row: []byte("ann"), RunningMs: 7}}}},
	}
	before, v := proto.CloneOf(m), keyless{rpc.View{}}
	got := v.Narrow(m).(*pb.NodeStatusResponse)
	a, b := got.Tablets[0], got.Tablets[1]
	if string(a.Tablet.StartRow) != "#1" || string(a.Tablet.EndRow) != "#2" || string(b.Tablet.StartRow) != "#2" ||
		len(b.Tablet.EndRow)+len(a.SizeKey)+len(a.LoadKey) > 0 {
		t.Errorf("tablets %v, %v", a, b)
	}
	if r := got.Observers[0].Rows[0]; string(r.Row) != "#" || r.RunningMs != 7 {
		t.Errorf("a row of an observer: %v", r)
	}
	if !proto.Equal(m, before) {
		t.Error("the message has changed")
	}
	if tables := v.Narrow(&pb.TablesResponse{Tables: []*pb.Table{{Name: "t", SplitKeys: [][]byte{[]byte("ann")}}}}).(*pb.TablesResponse); tables.Tables[0].Name != "t" || len(tables.Tables[0].SplitKeys) > 0 {
		t.Errorf("%v", tables)
	}
}

package wire

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

func TestOverlap(t *testing.T) {
	d := func(start, end string) *pb.TabletDescriptor {
		return &pb.TabletDescriptor{
			StartTable: 16, StartRow: []byte(start), EndTable: 16, EndRow: []byte(end),
			EndUnbounded: end == "",
		}
	}
	for _, c := range []struct {
		a, b *pb.TabletDescriptor
		want bool
	}{
		{d("a", "m"), d("m", "z"), false},
		{d("a", "m"), d("l", "z"), true},
		{d("a", ""), d("m", "z"), true},
		{d("a", ""), d("b", ""), true},
		{d("a", "b"), d("b", ""), false},
		{d("m", "m"), d("a", "z"), false}, // without rows
		{&pb.TabletDescriptor{TabletId: 3}, d("a", ""), false},
	} {
		if got := Overlap(c.a, c.b); got != c.want || Overlap(c.b, c.a) != c.want {
			t.Errorf("%v and %v: %v", c.a, c.b, got)
		}
	}
}

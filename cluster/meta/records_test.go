package meta

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
)

// TestLostAnswersAreReadBack: the answer to a conditional write is lost, before or after it took
// effect, and another writer may have written since. No number is ever granted twice.
func TestLostAnswersAreReadBack(t *testing.T) {
	for _, carriedOut := range []bool{false, true} {
		for _, rival := range []bool{false, true} {
			t.Run(fmt.Sprintf("carried out %v, rival %v", carriedOut, rival), func(t *testing.T) {
				w, other := newWorld(t)
				lost := 0
				mine := New(func(ctx context.Context, tablet uint64,
					req *pb.TabletRequest) (*pb.TabletResponse, error) {
					if req.GetRawWrite() == nil || lost > 0 {
						return w.send(ctx, tablet, req)
					}
					lost++
					if carriedOut {
						if _, err := w.send(ctx, tablet, req); err != nil {
							return nil, err
						}
					}
					if rival {
						if _, err := other.Schema.nextIDs(ctx, rowNextTable, 16, 1); err != nil {
							return nil, err
						}
					}
					return nil, route.ErrUnknown
				}, w.router, nil)
				seen := map[uint64]bool{}
				if rival {
					seen[16] = !carriedOut
					seen[17] = carriedOut
				}
				for range 3 {
					id, err := mine.Schema.nextIDs(t.Context(), rowNextTable, 16, 1)
					if err != nil {
						t.Fatal(err)
					}
					if seen[id] {
						t.Errorf("number %d was granted twice", id)
					}
					seen[id] = true
				}
				if lost != 1 {
					t.Error("no answer was lost")
				}
				if !rival && carriedOut && !seen[16] {
					t.Error("a number was thrown away although its writer could know that it has it")
				}
			})
		}
	}
}

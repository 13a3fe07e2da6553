package rpc

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Views export the filter of answers for HTTP and diagnosis files.

// View filters messages by one caller's grants. The zero value hides nothing. Its methods may
// be called concurrently.
type View struct{ filter visibilityFilter }

// View returns the view of the caller.
func (g *Guard) View(who Caller) View { return View{g.grants.filterFor(who)} }

// ViewWithoutGrants returns the view of a caller without a grant for any table of the policy.
func ViewWithoutGrants(policy *pb.Policy) View {
	h := visibilityFilter{}
	for _, g := range policy.GetGrants() {
		h[g.Table] = g.TableName
	}
	return View{h}
}

// Key returns a text that is equal for views that hide the same tables; empty if nothing is
// hidden.
func (v View) Key() string {
	if len(v.filter) == 0 {
		return ""
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(v.filter)))
}

// HidesKeys reports whether the table, and so its row keys, is hidden.
func (v View) HidesKeys(table uint32) bool { return v.filter.has(mvcc.TableID(table)) }

// Narrow returns the answer without hidden parts, or nil if nothing is left. It does not change m,
// and returns m itself if m cannot hold hidden parts.
func (v View) Narrow(m proto.Message) proto.Message {
	out, refusal := v.filter.narrow(nil, m)
	if refusal != nil {
		return nil
	}
	return out.(proto.Message)
}

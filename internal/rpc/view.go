package rpc

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file lets others filter what they show by the same rules as answers to calls: HTTP, and files
// that are handed on. It keeps nothing.

// View is what somebody may be told of tables that have grants. The zero value hides nothing. Its
// methods may be used concurrently.
type View struct{ hidden hidden }

// View returns what the caller may be told.
func (g *Guard) View(who Caller) View { return View{g.grants.hiddenFrom(who)} }

// ViewWithoutGrants returns what somebody may be told who has no grant for any table of the policy.
func ViewWithoutGrants(policy *pb.Policy) View {
	h := hidden{}
	for _, g := range policy.GetGrants() {
		h[g.Table] = g.TableName
	}
	return View{h}
}

// Key returns a text that is the same for all views that hide the same; empty: nothing is hidden.
func (v View) Key() string {
	if len(v.hidden) == 0 {
		return ""
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(v.hidden)))
}

// Hides reports whether the table is hidden.
func (v View) Hides(table uint32) bool { return v.hidden.has(mvcc.TableID(table)) }

// Narrow returns the answer without what is hidden, nil if nothing is left of it. It changes a copy.
func (v View) Narrow(m proto.Message) proto.Message {
	out, refusal := v.hidden.narrow(nil, m)
	if refusal != nil {
		return nil
	}
	return out.(proto.Message)
}

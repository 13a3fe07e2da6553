package meta

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestLateLink: a call of an earlier incarnation that arrives late changes nothing, also if the later
// one runs the same observers as the one before it.
func TestLateLink(t *testing.T) {
	ctx := context.Background()
	_, m := newWorld(t)
	link := func(incarnation uint64, names ...string) {
		t.Helper()
		if err := m.Observers.Link(ctx, mvcc.Worker{Node: 1, Incarnation: incarnation}, names); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		incarnation uint64
		names, want []string
	}{
		{5, []string{"b", "a"}, []string{"a", "b"}},
		{6, []string{"a", "b"}, []string{"a", "b"}},
		{5, []string{"a"}, []string{"a", "b"}},
		{6, []string{"a"}, []string{"a"}},
		{6, nil, nil},
	} {
		link(step.incarnation, step.names...)
		linked, err := m.Observers.Linked(ctx, func(uint64) bool { return true })
		if got := slices.Sorted(maps.Keys(linked)); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("after incarnation %d linked %q: %q, %v; want %q", step.incarnation, step.names, got, err, step.want)
		}
	}
}

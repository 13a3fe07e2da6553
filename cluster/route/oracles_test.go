package route

import (
	"strings"
	"testing"
)

// TestNotLeaderText: the error names the leader only if it is known.
func TestNotLeaderText(t *testing.T) {
	if got := (&NotLeader{Leader: 7}).Error(); !strings.HasSuffix(got, "; node 7 does") {
		t.Error(got)
	}
	if got := (&NotLeader{}).Error(); strings.Contains(got, "node 0") || !strings.Contains(got, "does not lead meta") {
		t.Error(got)
	}
}

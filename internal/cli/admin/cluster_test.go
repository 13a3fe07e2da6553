package admin

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestPolicyArguments: values are written like flags, and invalid ones are refused before a node is
// called.
func TestPolicyArguments(t *testing.T) {
	set, err := parsePolicy([]string{
		"history=90m", "replicas=5", "split-size=256MiB", "no-splits=true",
	})
	want := &pb.Policy{
		HistoryMs: proto.Uint64(5_400_000), Replicas: proto.Uint64(5),
		SplitBytes: proto.Uint64(256 << 20), NoSplits: proto.Bool(true),
	}
	if err != nil || !proto.Equal(set, want) {
		t.Errorf("%v, %v", set, err)
	}
	for arg, says := range map[string]string{
		"history": "KEY=VALUE", "histroy=1h": `did you mean "history"`,
		"history=soon": "not a duration", "history=1ns": "whole milliseconds",
		"replicas=2": "not odd", "replicas=7": "between 1 and 5", "replicas=-1": "not a whole number",
		"split-size=1XB":  "not a whole number",
		"no-splits=maybe": "neither", "split-max-tablets=100000": "between 1 and 65536",
	} {
		if _, err := parsePolicy([]string{arg}); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if _, err := parsePolicy([]string{"history=1h", "history=2h"}); err == nil {
		t.Error("one setting twice")
	}
}

package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// busyClients returns connections of two identities with certificates, and of one without.
func busyClients() *pb.ClientsResponse {
	return &pb.ClientsResponse{
		Clients: []*pb.ClientConnection{
			{NodeId: 1, Id: 4, Name: "report", Role: "reader", By: "certificate", From: "10.0.0.5:99", Rate: 7},
			{NodeId: 1, Id: 9, Name: "shop\x1b[1m", Role: "writer", By: "certificate", From: "10.0.0.6:1", Rate: 20,
				Operations: 100, Refused: 3},
			{NodeId: 2, Id: 1, Name: "shop\x1b[1m", Role: "writer", By: "certificate", From: "10.0.0.6:2", Rate: 30,
				Operations: 50},
			{NodeId: 2, Id: 2, From: "10.0.0.7:3"},
		},
		Unavailable: []string{"node 3: silent"},
	}
}

// TestClientList: identities are summed over all nodes, the busiest first.
func TestClientList(t *testing.T) {
	fake := bankCluster()
	fake.clients = busyClients()
	code, stdout, stderr := runApp(t, fake, nil, "client", "ls")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || len(lines) != 4 || !strings.Contains(stderr, "node 3: silent") {
		t.Fatalf("%d, %q, %q", code, stdout, stderr)
	}
	for i, want := range []string{
		`"shop\x1b[1m" certificate writer 1,2 2 50 150 3`, "report certificate reader 1 1 7 0 0", "10.0.0.7 - - 2 1 0 0 0",
	} {
		if got := strings.Join(strings.Fields(lines[i+1]), " "); got != want {
			t.Errorf("line %d: %q, want %q", i+1, got, want)
		}
	}
	_, stdout, _ = runApp(t, fake, nil, "client", "ls", "--connections")
	if !strings.Contains(stdout, "1/9 ") || !strings.Contains(stdout, "10.0.0.6:2") {
		t.Errorf("connections: %q", stdout)
	}
	_, stdout, _ = runApp(t, fake, nil, "client", "ls", "-o", "json")
	if !strings.Contains(stdout, `"identity":"report","by":"certificate","roles":["reader"],"nodes":[1]`) {
		t.Errorf("JSON: %q", stdout)
	}
}

// TestClientDisconnect: the request contains what the arguments name, and none is sent if they name
// nothing or two things.
func TestClientDisconnect(t *testing.T) {
	for _, test := range []struct {
		args []string
		want *pb.DisconnectClientRequest // nil: wrong usage
	}{
		{[]string{"shop"}, &pb.DisconnectClientRequest{Identity: "shop"}},
		{[]string{"--connection", "2/17"}, &pb.DisconnectClientRequest{NodeId: 2, Id: 17}},
		{[]string{"--connection", "17"}, nil},
		{[]string{"shop", "--connection", "2/17"}, nil},
		{nil, nil},
	} {
		fake := bankCluster()
		code, stdout, stderr := runApp(t, fake, nil, append([]string{"client", "disconnect"}, test.args...)...)
		if test.want == nil {
			if code != 2 || len(fake.sent) > 0 {
				t.Errorf("%v: %d, %v", test.args, code, fake.sent)
			}
			continue
		}
		if code != 0 || !strings.Contains(stdout, "2 connections") || !strings.Contains(stderr, "node 3") ||
			len(fake.sent) != 1 || !proto.Equal(fake.sent[0], test.want) {
			t.Errorf("%v: %d, %q, %q, %v", test.args, code, stdout, stderr, fake.sent)
		}
	}
}

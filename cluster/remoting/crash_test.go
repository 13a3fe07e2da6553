package remoting_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/wire"
)

// attacker is a connection that holds a node's certificate and speaks the library's
// protocol as it likes.
type attacker struct {
	t    *testing.T
	conn *grpc.ClientConn
}

func attack(t *testing.T, addr string, cfg *tls.Config) *attacker {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &attacker{t, conn}
}

func connect() *remote.RemoteMessage {
	return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{
		ConnectionType: &remote.ConnectRequest_ServerConnection{
			ServerConnection: &remote.ServerConnection{MemberId: "m", Address: "a:1"},
		},
	}}}
}

func batch(b *remote.MessageBatch) *remote.RemoteMessage {
	return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: b}}
}

// to is a message for an actor, as the library would send it.
func to(t *testing.T, target string, m proto.Message) *remote.MessageBatch {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &remote.MessageBatch{
		TypeNames: []string{string(proto.MessageName(m))}, Targets: []string{target},
		Envelopes: []*remote.MessageEnvelope{{MessageData: data}},
	}
}

// sends sends messages on a stream of its own, and returns how the stream ends; nil if it
// has not after long.
func (a *attacker) sends(messages ...*remote.RemoteMessage) error {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := remote.NewRemotingClient(a.conn).Receive(ctx)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := s.Send(m); err != nil {
			break // receiving tells why
		}
	}
	for {
		if _, err := s.Recv(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// proper is a batch that a node would send.
func proper(t *testing.T) *remote.MessageBatch {
	return to(t, "peers", &wire.PeerBatch{
		ClusterId: "c", FromNode: 9, FromIncarnation: 1, ToNode: 2,
	})
}

// changed is a proper batch with something wrong about it.
func changed(t *testing.T, change func(*remote.MessageBatch)) *remote.RemoteMessage {
	b := proper(t)
	change(b)
	return batch(b)
}

// hostile are streams that are to be refused, by what is wrong with them.
func hostile(t *testing.T, pid *actor.PID) map[string][]*remote.RemoteMessage {
	t.Helper()
	all := forgedBatches(t, pid)
	maps.Copy(all, forgedMessages(t, pid))
	maps.Copy(all, forgedConnections(t))
	return all
}

// forgedBatches are streams with one thing wrong about a batch.
func forgedBatches(t *testing.T, pid *actor.PID) map[string][]*remote.RemoteMessage {
	t.Helper()
	first := proper(t).Envelopes[0]
	return map[string][]*remote.RemoteMessage{
		"unknown type": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.TypeNames[0] = "no.such.Type"
		})},
		"type of another use": {
			connect(), batch(to(t, "peers", &remote.ActorPidRequest{Name: "x", Kind: "y"})),
		},
		"type index too high": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].TypeId = 7
		})},
		"type index negative": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].TypeId = -1
		})},
		"no type": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.TypeNames = nil
		})},
		"target index too high": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].Target = 7
		})},
		"target index negative": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].Target = -1
		})},
		"sender index": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].Sender = 7
		})},
		"sender": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Senders = []*actor.PID{pid}
		})},
		"serializer": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].SerializerId = 1
		})},
		"unknown serializer": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].SerializerId = 99
		})},
		"header": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].MessageHeader = &remote.MessageHeader{}
		})},
		"many envelopes": {connect(), changed(t, func(m *remote.MessageBatch) {
			for range 1_000 {
				m.Envelopes = append(m.Envelopes, first)
			}
		})},
		"no batch": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].MessageData = []byte{0xff}
		})},
		"many requests": {
			connect(), batch(to(t, "peers",
				&wire.PeerBatch{Requests: slices.Repeat([]*wire.PeerRequest{{}}, 1_000_000)})),
		},
		"huge batch": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Envelopes[0].MessageData = make([]byte, 40<<20)
		})},
	}
}

// forgedMessages are streams with messages that no node sends to another.
func forgedMessages(t *testing.T, pid *actor.PID) map[string][]*remote.RemoteMessage {
	t.Helper()
	return map[string][]*remote.RemoteMessage{
		"stop":                  {connect(), batch(to(t, "peers", &actor.Stop{}))},
		"poison pill":           {connect(), batch(to(t, "peers", &actor.PoisonPill{}))},
		"watch":                 {connect(), batch(to(t, "peers", &actor.Watch{Watcher: pid}))},
		"terminated":            {connect(), batch(to(t, "peers", &actor.Terminated{Who: pid}))},
		"stop of the activator": {connect(), batch(to(t, "activator", &actor.Stop{}))},
		"batch for the supervisor": {connect(), changed(t, func(m *remote.MessageBatch) {
			m.Targets[0] = "EndpointSupervisor"
		})},
		"spawn": {
			connect(), batch(to(t, "activator", &remote.ActorPidRequest{Name: "x", Kind: "y"})),
		},
	}
}

// forgedConnections are streams that do not begin or end as those of nodes.
func forgedConnections(t *testing.T) map[string][]*remote.RemoteMessage {
	t.Helper()
	return map[string][]*remote.RemoteMessage{
		"no connect request":   {batch(proper(t))},
		"two connect requests": {connect(), connect()},
		"connect request of a client": {{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{
			ConnectionType: &remote.ConnectRequest_ClientConnection{
				ClientConnection: &remote.ClientConnection{},
			}}}}},
		"empty connect request": {{MessageType: &remote.RemoteMessage_ConnectRequest{}}},
		"disconnect": {
			connect(), {
				MessageType: &remote.RemoteMessage_DisconnectRequest{
					DisconnectRequest: &remote.DisconnectRequest{},
				},
			},
		},
		"nothing": {{}},
	}
}

// What is known to end a process that uses the library as it is, and what would harm a
// node, is refused and counted. The process lives on and serves a proper node.
func TestHostileNode(t *testing.T) {
	dir := certstest.Folder(t, "elsewhere")
	a, b := pair(t, dir)
	a.asks(2)
	files, err := certs.Open(certs.NodeSource(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	x := attack(t, b.addr, files.Peer())
	pid := &actor.PID{Address: b.addr, Id: "peers"}
	refused := b.stats().Refused
	for name, messages := range hostile(t, pid) {
		if err := x.sends(messages...); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "refused") {
			t.Fatalf("HOSTILE: %s: %v", name, err)
		}
		if now := b.stats().Refused; now != refused+1 {
			t.Errorf("%s: %d refusals were counted", name, now-refused)
		} else {
			refused = now
		}
	}
	client := remote.NewRemotingClient(x.conn)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = client.ListProcesses(ctx, &remote.ListProcessesRequest{})
	_, err2 := client.GetProcessDiagnostics(ctx, &remote.GetProcessDiagnosticsRequest{Pid: pid})
	if status.Code(err) != codes.PermissionDenied || status.Code(err2) != codes.PermissionDenied {
		t.Errorf("calls that the library lacks: %v, %v", err, err2)
	}
	if err := x.conn.Invoke(ctx, "/remote.Remoting/Nothing", &remote.ListProcessesRequest{},
		&remote.ListProcessesResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a call that nobody knows: %v", err)
	}
	if err := x.sends(connect(), changed(t, func(m *remote.MessageBatch) {
		m.Envelopes[0].MessageData = make([]byte, 70<<20)
	})); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("70 MiB: %v", err)
	}
	if got := a.tell("large 2 %d", 8<<20); !strings.HasPrefix(got, "ok") {
		t.Errorf("8 MiB of a proper node: %s", got)
	}
	a.asks(2)
	b.asks(1)
	if st := b.stats(); st.Panics != 0 || st.Refused != refused+2 {
		t.Errorf("%+v", st)
	}
}

// Without a node's certificate of the authority nobody gets as far as the first message.
func TestStrangers(t *testing.T) {
	dir, other := certstest.Folder(t, "elsewhere"), certstest.Folder(t, "elsewhere")
	a, b := pair(t, dir)
	a.asks(2)
	config := func(s certs.Source) *tls.Config {
		files, err := certs.Open(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg := files.Peer()
		cfg.VerifyConnection = nil // whoever the server is
		return cfg
	}
	strangers := map[string]*tls.Config{
		"no certificate":                 {InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
		"a client's certificate":         config(certs.ClientSource(dir)),
		"another authority's node":       config(certs.NodeSource(other)),
		"another authority's client":     config(certs.ClientSource(other)),
		"an old version of the protocol": {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12},
	}
	for name, cfg := range strangers {
		before := b.stats().Handshakes
		if err := attack(t, b.addr, cfg).sends(connect()); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		// the refusal is sent before it is counted
		for begin := time.Now(); b.stats().Handshakes == before; {
			if time.Since(begin) > patience {
				t.Fatalf("%s: not counted", name)
			}
		}
	}
	plain, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := fmt.Fprint(plain, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Error(err)
	}
	a.asks(2)
	b.asks(1)
}

// TestPlacesAreForTheAuthenticated: connections in the midst of their handshakes close each other, and
// neither a node that is connected nor one that connects meanwhile. Streams take places.
func TestPlacesAreForTheAuthenticated(t *testing.T) {
	dir := certstest.Folder(t, "elsewhere")
	a, b := start(t, childConfig{Node: 1, Incarnation: 1, Certs: dir}),
		start(t, childConfig{Node: 2, Incarnation: 1, Certs: dir, MaxConnections: 2, MaxPending: 8})
	a.knows(2, b.addr)
	b.knows(1, a.addr)
	a.asks(2)
	for range 100 {
		conn, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte{22, 3, 1, 2, 0, 1}) // the beginning of a handshake; it may be closed already
	}
	for begin := time.Now(); b.stats().Displaced < 100-8; {
		if time.Since(begin) > patience {
			t.Fatalf("%+v", b.stats())
		}
	}
	a.asks(2)
	files, err := certs.Open(certs.NodeSource(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []codes.Code{codes.InvalidArgument, codes.ResourceExhausted} { // one place is a's
		x, began := attack(t, b.addr, files.Peer()), time.Now()
		if code := status.Code(x.sends(connect(), connect())); code != want || time.Since(began) > time.Second {
			t.Errorf("PLACES: a node that connects gets %v after %v, want %v", code, time.Since(began), want)
		}
	}
}

// TestWhyANodeIsNotReached: the error of a question says that the certificates do not fit.
func TestWhyANodeIsNotReached(t *testing.T) {
	a := start(t, childConfig{Node: 1, Incarnation: 1, Certs: certstest.Folder(t, "elsewhere")})
	b := start(t, childConfig{Node: 2, Incarnation: 1, Certs: certstest.Folder(t, "elsewhere")})
	a.knows(2, b.addr)
	got := ""
	for begin := time.Now(); !strings.Contains(got, "certificate"); got = a.tell("ask 2 1 1") {
		if time.Since(begin) > patience {
			t.Fatalf("the error is: %s", got)
		}
	}
}

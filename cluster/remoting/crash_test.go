package remoting_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/wire"
)

// attacker is a connection that has a node's certificate and sends arbitrary frames.
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

const stream = "/remote.Remoting/Receive"

// sends sends encoded frames on a new stream. It returns the stream's error, nil if it has not
// ended after 10 s.
func (a *attacker) sends(frames ...[]byte) error {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := a.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, stream)
	if err != nil {
		return err
	}
	for _, frame := range frames {
		m := &emptypb.Empty{}
		m.ProtoReflect().SetUnknown(frame) // it is encoded as the frame
		if err := s.SendMsg(m); err != nil {
			break // RecvMsg returns the reason
		}
	}
	for {
		if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// field encodes a field of a message whose value is the parts one after the other.
func field(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(parts...))
}

// varint encodes a field that is a number.
func varint(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

// hello is a node's first frame; the parts are its fields.
func hello(parts ...[]byte) []byte { return field(2, field(2, parts...)) }

// delivery is the frame of an encoded batch, with optional further fields of the delivery.
func delivery(batch []byte, more ...[]byte) []byte {
	return field(1, typed("percolator.wire.PeerBatch"), field(2, []byte("peers")),
		field(3, field(2, batch)), slices.Concat(more...))
}

// typed encodes the name of a message's type.
func typed(name string) []byte { return field(1, []byte(name)) }

func encoded(t *testing.T, b *wire.PeerBatch) []byte {
	t.Helper()
	data, err := proto.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// hostile maps a fault to the frames after a hello that must be refused for it.
func hostile(t *testing.T) map[string][]byte {
	t.Helper()
	proper := encoded(t, &wire.PeerBatch{ClusterId: "c", FromNode: 9, FromIncarnation: 1, ToNode: 2})
	peers, envelope := field(2, []byte("peers")), field(3, field(2, proper))
	batch := typed("percolator.wire.PeerBatch")
	return map[string][]byte{
		"unknown type":                field(1, typed("no.such.Type"), peers, envelope),
		"stop of an actor":            field(1, typed("actor.Stop"), peers, envelope),
		"no type":                     field(1, peers, envelope),
		"two types":                   delivery(proper, batch),
		"two targets":                 delivery(proper, peers),
		"other target":                field(1, batch, field(2, []byte("activator")), envelope),
		"no target":                   field(1, batch, envelope),
		"no envelope":                 field(1, batch, peers),
		"two envelopes":               delivery(proper, envelope),
		"sender":                      delivery(proper, field(4, proper)),
		"empty envelope":              field(1, batch, peers, field(3)),
		"type index":                  field(1, batch, peers, field(3, varint(1, 7), field(2, proper))),
		"negative target index":       field(1, batch, peers, field(3, field(2, proper), varint(3, 1<<64-1))),
		"serializer":                  field(1, batch, peers, field(3, field(2, proper), varint(5, 1))),
		"header":                      field(1, batch, peers, field(3, field(2, proper), field(6))),
		"two batches":                 field(1, batch, peers, field(3, field(2, proper), field(2, proper))),
		"no batch":                    delivery([]byte{0xff}),
		"wrong kind in a batch":       delivery(varint(1, 1)[:1]),
		"text that is not UTF-8":      delivery(field(1, []byte{0xff})),
		"many requests":               delivery(bytes.Repeat(field(5), 1_000_000)),
		"huge batch":                  delivery(make([]byte, 40<<20)),
		"many types":                  field(1, bytes.Repeat(field(1), 1_000_000)),
		"two deliveries":              slices.Concat(delivery(proper), delivery(proper)),
		"second hello":                hello(),
		"delivery and hello":          slices.Concat(delivery(proper), hello()),
		"welcome":                     field(3),
		"disconnect":                  field(4),
		"nothing":                     {},
		"number instead of a message": varint(1, 1),
		"garbage":                     []byte("GET / HTTP/1.1"),
		"length beyond the frame":     {1<<3 | 2, 0x7f, 1},
	}
}

// hostileHellos maps a fault to the first frame that must be refused for it.
func hostileHellos(t *testing.T) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"batch before the hello": delivery(encoded(t, &wire.PeerBatch{})),
		"hello of a client":      field(2, field(1)),
		"empty hello":            field(2),
		"long name":              hello(field(1, make([]byte, 2<<10))),
		"block list":             hello(field(3, []byte("m"))),
		"garbage":                []byte("GET / HTTP/1.1"),
	}
}

// TestHostileNode: any invalid frame from the holder of a node's certificate is refused and
// counted, and the node still serves valid ones.
func TestHostileNode(t *testing.T) {
	dir := certstest.Folder(t, "elsewhere")
	a, b := pair(t, dir)
	a.asks(2)
	files, err := certs.Open(certs.NodeSource(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	x := attack(t, b.addr, files.Peer())
	refused := b.stats().Refused
	isRefused := func(name string, frames ...[]byte) {
		t.Helper()
		if err := x.sends(frames...); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "refused") {
			t.Fatalf("HOSTILE: %s: %v", name, err)
		}
		if now := b.stats().Refused; now != refused+1 {
			t.Errorf("%s: %d refusals were counted", name, now-refused)
		}
		refused++
	}
	for name, frame := range hostile(t) {
		isRefused(name, hello(), frame)
	}
	for name, frame := range hostileHellos(t) {
		isRefused(name, frame)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, method := range []string{"/remote.Remoting/ListProcesses", "/percolator.v1.Admin/Status"} {
		if err := x.conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a call of %s: %v", method, err)
		}
	}
	if err := x.sends(hello(), delivery(make([]byte, 70<<20))); status.Code(err) != codes.ResourceExhausted {
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

// Without a node's certificate from the authority no message is accepted.
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
		cfg.VerifyConnection = nil // for any server
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
		if err := attack(t, b.addr, cfg).sends(hello()); status.Code(err) != codes.Unavailable {
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

// TestPlacesAreForTheAuthenticated: unfinished handshakes evict each other, and neither a connected
// node nor one that is connecting. Streams take places.
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
		if code := status.Code(x.sends(hello(), hello())); code != want || time.Since(began) > 4*time.Second { // the 100 end after 5 s
			t.Errorf("PLACES: a node that connects gets %v after %v, want %v", code, time.Since(began), want)
		}
	}
}

// TestWhyANodeIsNotReached: the error of a request says that the certificates do not match.
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

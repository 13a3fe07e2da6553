package remoting

import (
	"bytes"
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/wire"
)

// Frames of builds before ADR 0064, from protoactor's remote.
const (
	earlierHello   = "121812160a0434626364120e3132372e302e302e313a37303033"
	earlierWelcome = "1a06120434626364"
	earlierBatch   = "0a380a19706572636f6c61746f722e776972652e506565724261746368120570656572731a" +
		"1412120a0163100118022003490400000000000000"
)

func earlier(t testing.TB, text string) []byte {
	t.Helper()
	frame, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// TestFramesOfEarlierBuilds: nodes of this build and of earlier ones understand each other.
func TestFramesOfEarlierBuilds(t *testing.T) {
	b := &wire.PeerBatch{ClusterId: "c", FromNode: 1, FromIncarnation: 2, ToNode: 3, LogReached: 4}
	sent, err := encode(batchFrame(b))
	if err != nil {
		t.Fatal(err)
	}
	if got := sent.Materialize(); !bytes.Equal(got, earlier(t, earlierBatch)) {
		t.Errorf("a batch is sent as %x", got)
	}
	if err := checkBatch(earlier(t, earlierBatch)); err != nil {
		t.Error(err)
	}
	got, err := decode(earlier(t, earlierBatch))
	if err != nil || !proto.Equal(got.GetDelivery().GetEnvelope().GetBatch(), b) {
		t.Errorf("a batch is received as %v, %v", got, err)
	}
	if err := checkHello(earlier(t, earlierHello)); err != nil {
		t.Error(err)
	}
	if got, err := decode(earlier(t, earlierWelcome)); err != nil || got.GetWelcome() == nil {
		t.Errorf("a welcome is received as %v, %v", got, err)
	}
	// Earlier builds refuse a hello without the second field inside the first, and accept any
	// welcome.
	for want, f := range map[string]*wire.PeerFrame{"12021200": helloFrame(), "1a00": welcomeFrame()} {
		got, err := encode(f)
		if err != nil || hex.EncodeToString(got.Materialize()) != want {
			t.Errorf("%v is sent as %x, %v; want %s", f, got.Materialize(), err, want)
		}
	}
}

// FuzzFrames: any frame is refused or decoded into one batch of at most maxFields messages, which
// is encoded into an accepted frame.
func FuzzFrames(f *testing.F) {
	for _, text := range []string{earlierHello, earlierWelcome, earlierBatch} {
		f.Add(earlier(f, text))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		_ = checkHello(frame)
		if checkBatch(frame) != nil {
			return
		}
		decoded, err := decode(frame)
		if err != nil {
			return // a field of the batch itself
		}
		b := decoded.GetDelivery().GetEnvelope().GetBatch()
		if n := len(b.GetRequests()) + len(b.GetResponses()) + len(b.GetRaft()); b == nil || n > maxFields {
			t.Fatalf("a batch of %d messages passes: %x", n, frame)
		}
		again, err := encode(batchFrame(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkBatch(again.Materialize()); err != nil {
			t.Fatalf("%v: %x", err, frame)
		}
	})
}

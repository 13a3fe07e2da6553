package attack_test

import (
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"
)

// garbageForNodes: random bytes, and prefixes of valid messages, on a node's ports for clients, for
// nodes and for gossip.
func garbageForNodes(t *testing.T, c *target) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	for range 200 {
		for _, offset := range []int{0, 1, 2} {
			addr := beside(t, c.Addrs()[0], offset)
			for _, text := range [][]byte{noise(1 + rng.IntN(64<<10)),
				append(slices.Clip(preface), noise(4<<10)...),
				{byte(rng.IntN(32)), 0xff, 0xff, 0xff, 0xff}} {
				send(t, "tcp", addr, text)
			}
		}
		gossip := beside(t, c.Addrs()[0], 2)
		for kind := range byte(20) { // memberlist's kinds of messages
			send(t, "udp", gossip, append([]byte{kind}, noise(rng.IntN(1400))...))
		}
	}
	c.served(t)
}

// send sends the bytes and disconnects without waiting for an answer.
func send(t *testing.T, network, addr string, b []byte) {
	t.Helper()
	conn, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		t.Errorf("%s does not listen any more: %v", addr, err)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(b) // it may be closed already
	_ = conn.Close()
}

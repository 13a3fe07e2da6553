package gossip

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/percolator-go/percolator/cluster"
)

var (
	simulated = flag.Int("members", 12, "number of members that TestSimulated simulates")
	figures   = flag.String("figures", "", "file to which TestSimulated writes its figures as JSON")
)

// simulatedFigures are what memberlist sends, in bytes per member and second of virtual time.
type simulatedFigures struct {
	Members          int
	Packets, Streams float64       // pings with their gossip; exchanges of the whole state
	Detected         time.Duration // from a member's death until all others know it
}

// TestSimulated runs members with the nodes' intervals and metadata in virtual time, counts what they
// send at rest, and ends one.
func TestSimulated(t *testing.T) {
	var f simulatedFigures
	synctest.Test(t, func(t *testing.T) { f = simulate(t, *simulated) })
	t.Logf("%+v", f)
	// An exchange sends the state of all members both ways.
	most := 3 * 300 * float64(f.Members) / Timing{}.withDefaults().PushPull.Seconds()
	if f.Packets <= 0 || f.Streams <= 0 || f.Streams > most || f.Detected <= 0 || f.Detected > 10*time.Second {
		t.Errorf("want exchanges of at most %.0f bytes/s, and a death known within 10 s: %+v", most, f)
	}
	if *figures == "" {
		return
	}
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(*figures, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func simulate(t *testing.T, members int) simulatedFigures {
	t.Helper()
	network := &simNetwork{all: map[string]*simTransport{}}
	for i := range members {
		network.add(i)
	}
	var lists []*memberlist.Memberlist
	for i := range members {
		list, err := memberlist.Create(network.config(i))
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, list)
		if _, err := list.Join([]string{simAddr(0)}); err != nil {
			t.Fatal(err)
		}
	}
	known := func(lists []*memberlist.Memberlist, want int) bool {
		for _, l := range lists {
			if l.NumMembers() != want {
				return false
			}
		}
		return true
	}
	const window = time.Minute
	for settled := 0; settled < 10 && !known(lists, members); settled++ {
		<-time.After(window)
	}
	if !known(lists, members) {
		t.Error("not all members know each other")
	}
	packets, streams := network.packets.Load(), network.streams.Load()
	<-time.After(window)
	each := float64(members) * window.Seconds()
	f := simulatedFigures{
		Members: members, Packets: float64(network.packets.Load()-packets) / each,
		Streams: float64(network.streams.Load()-streams) / each,
	}
	last := members - 1
	died := time.Now()
	if err := lists[last].Shutdown(); err != nil {
		t.Error(err)
	}
	for !known(lists[:last], last) && time.Since(died) < window {
		<-time.After(10 * time.Millisecond)
	}
	f.Detected = time.Since(died)
	for _, l := range lists[:last] {
		if err := l.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	<-time.After(10 * time.Second) // memberlist's pings outlive it
	return f
}

// simNetwork counts the bytes that its transports carry.
type simNetwork struct {
	all              map[string]*simTransport // constant once members run
	packets, streams atomic.Int64
}

func simAddr(i int) string { return fmt.Sprintf("10.0.%d.%d:7800", i/200, i%200+1) }

func (n *simNetwork) add(i int) {
	n.all[simAddr(i)] = &simTransport{
		network: n, addr: simAddr(i), packets: make(chan *memberlist.Packet, 1024),
		streams: make(chan net.Conn), done: make(chan struct{}),
	}
}

// config returns the configuration of a member, which is a node's.
func (n *simNetwork) config(i int) *memberlist.Config {
	c := Timing{}.withDefaults().apply(memberlist.DefaultLANConfig())
	self := cluster.Member{
		NodeID: uint64(i)<<40 + 1, Incarnation: 1, Listen: simAddr(i), Peer: simAddr(i), Gossip: simAddr(i),
		HTTP: simAddr(i), Zone: "zone-1",
	}
	self.Load.SizeBytes, self.Load.DiskFree = 1<<36, 1<<40
	c.Name, c.Transport = nameOf(workerOf(self)), n.all[simAddr(i)]
	c.AdvertiseAddr, c.AdvertisePort, _ = c.Transport.(*simTransport).advertised()
	c.Logger = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	c.Delegate = simDelegate{meta: self}
	return c
}

// simDelegate supplies memberlist with a member's metadata.
type simDelegate struct {
	delegate
	meta cluster.Member
}

func (d simDelegate) NodeMeta(int) []byte {
	b, err := encodeMeta(1<<60, d.meta)
	if err != nil {
		panic(err)
	}
	return b
}

// simTransport implements memberlist.Transport in memory.
type simTransport struct {
	network *simNetwork
	addr    string
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{} // closed by Shutdown
}

var errNoMember = errors.New("no member at this address")

func (t *simTransport) advertised() (string, int, error) {
	ip, port, err := resolve(t.addr)
	return ip.String(), port, err
}

func (t *simTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return resolve(t.addr) }
func (t *simTransport) PacketCh() <-chan *memberlist.Packet                 { return t.packets }
func (t *simTransport) StreamCh() <-chan net.Conn                           { return t.streams }

func (t *simTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, now := t.network.all[addr], time.Now()
	if to == nil {
		return now, errNoMember
	}
	t.network.packets.Add(int64(len(b)))
	from, _ := net.ResolveUDPAddr("udp", t.addr) // an IP address
	select {
	case to.packets <- &memberlist.Packet{Buf: b, From: from, Timestamp: now}:
	default: // full, or nobody receives
	}
	return now, nil
}

func (t *simTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to := t.network.all[addr]
	if to == nil {
		return nil, errNoMember
	}
	here, there := net.Pipe()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case to.streams <- simStream{there, t.network}:
		return simStream{here, t.network}, nil
	case <-to.done:
	case <-timer.C:
	}
	return nil, errNoMember
}

func (t *simTransport) Shutdown() error {
	close(t.done)
	return nil
}

// simStream counts what is written to it.
type simStream struct {
	net.Conn
	network *simNetwork
}

func (s simStream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.network.streams.Add(int64(n))
	return n, err
}

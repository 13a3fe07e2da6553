package connlimit

import (
	"errors"
	"net"
	"testing"
)

// fake is a connection from an address.
type fake struct {
	net.Conn
	from   string
	closed bool
}

func (f *fake) Close() error { f.closed = true; return nil }

func (f *fake) RemoteAddr() net.Addr { return text(f.from) }

type text string

func (text) Network() string  { return "tcp" }
func (t text) String() string { return string(t) }

// TestFloodMakesRoomForOthers: connections that are not admitted never exceed the bound. Those of
// the address with the most are closed first, oldest first.
func TestFloodMakesRoomForOthers(t *testing.T) {
	l := New(Config{Pending: 4, Admitted: 2})
	var all []*fake
	track := func(from string) *Conn {
		f := &fake{from: from}
		all = append(all, f)
		return l.Track(f)
	}
	track("10.0.0.1:1")
	for range 100 {
		track("10.0.0.2:1")
	}
	track("10.0.0.3:1")
	// Two addresses of one /64 network count as one host.
	last := track("[2001:db8::1]:1")
	track("[2001:db8::2]:1")
	open := map[string]int{}
	for _, f := range all {
		if !f.closed {
			open[f.from]++
		}
	}
	for from, want := range map[string]int{
		"10.0.0.1:1": 1, "10.0.0.2:1": 1, "10.0.0.3:1": 1, "[2001:db8::1]:1": 0, "[2001:db8::2]:1": 1,
	} {
		if open[from] != want {
			t.Errorf("%s has %d open connections, want %d: %v", from, open[from], want, open)
		}
	}
	if all[0].closed || all[1].closed == false || l.Closed() != 100 {
		t.Errorf("%d were closed; the first ones: %v %v", l.Closed(), all[0].closed, all[1].closed)
	}
	if err := last.Admit(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed connection is admitted: %v", err)
	}
}

// TestPlaces: an admitted connection is not closed for others, and when it is released or closed
// one other can take its place. A share bounds the connections of one address.
func TestPlaces(t *testing.T) {
	l := New(Config{Pending: 1, Admitted: 3, Share: 2})
	inner := &fake{from: "10.0.0.1:1"}
	first := l.Track(inner)
	admit := func(c *Conn, want error) {
		t.Helper()
		if err := c.Admit(); !errors.Is(err, want) {
			t.Errorf("admitted: %v, want %v", err, want)
		}
	}
	admit(first, nil)
	admit(first, nil)
	second := l.Track(&fake{from: "10.0.0.1:2"})
	admit(second, nil)
	admit(l.Track(&fake{from: "10.0.0.1:3"}), ErrFull) // the share
	admit(l.Track(&fake{from: "10.0.0.2:1"}), nil)
	admit(l.Track(&fake{from: "10.0.0.3:1"}), ErrFull)
	if inner.closed {
		t.Error("PLACES: an admitted connection was closed")
	}
	_ = second.Close()
	_ = second.Close()
	third := l.Track(&fake{from: "10.0.0.3:1"})
	admit(third, nil)
	third.Release()
	third.Release()
	admit(third, nil)
	first.Release()
	l.Track(&fake{from: "10.0.0.4:1"})
	if !inner.closed {
		t.Error("a released connection is not pending")
	}
	admit(first, net.ErrClosed)
	if Of(first.RemoteAddr()) != first || Of(text("10.0.0.1:1")) != nil {
		t.Error("an address leads to another connection")
	}
}

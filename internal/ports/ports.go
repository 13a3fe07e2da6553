// Package ports finds addresses for processes that must keep theirs over restarts. A port that the
// kernel assigned for ":0" is not one: once its listener is closed, the kernel may assign it to
// any connection on the machine.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The kernel assigns ports from 32768 on (ip(7), ip_local_port_range); lower ones are used only by
// processes that request them by number. Tests of many packages run concurrently and start nodes
// later than they choose their ports, so a block of ports belongs to the process that listens on
// its first port.
const (
	lowest = 20000
	blocks = 187
	block  = 64
	tries  = 100
)

// ErrNone reports that Run found no free ports in tries attempts.
var ErrNone = errors.New("ports: no free ports")

// mine are the blocks of this process, which keeps them until it ends.
var mine struct {
	sync.Mutex
	claims    []net.Listener // on the first ports of the blocks
	next, end int            // what is left of the last block
}

// Run finds count adjacent ports, at most 63, of 127.0.0.1 that are free now, and that this
// function returns to no other process on the machine while this one lives. It returns the first
// of them.
func Run(count int) (base int, err error) {
	if count >= block {
		return 0, fmt.Errorf("%w: %d adjacent ports; at most %d are possible", ErrNone, count, block-1)
	}
	mine.Lock()
	defer mine.Unlock()
	for range tries {
		if mine.next+count > mine.end {
			if err = claim(); err != nil {
				continue
			}
		}
		base, mine.next = mine.next, mine.next+count
		if err = free(base, count); err == nil {
			return base, nil
		}
	}
	return 0, fmt.Errorf("%w: %d adjacent ports from %d to %d: %w", ErrNone, count, lowest,
		lowest+blocks*block, err)
}

// Addr returns an address of 127.0.0.1 that is free as those of Run are.
func Addr() (string, error) {
	port, err := Run(1)
	return Local(port), err
}

// Local returns the address of a port of 127.0.0.1.
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// claim reserves a free block.
func claim() error {
	first := lowest + rand.IntN(blocks)*block
	l, err := net.Listen("tcp", Local(first))
	if err != nil {
		return err
	}
	mine.claims = append(mine.claims, l)
	mine.next, mine.end = first+1, first+block
	return nil
}

// free reports whether the ports are free, for TCP and, as gossip needs it, for UDP.
func free(base, count int) error {
	for port := base; port < base+count; port++ {
		l, err := net.Listen("tcp", Local(port))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
		p, err := net.ListenPacket("udp", Local(port))
		if err != nil {
			return err
		}
		if err := p.Close(); err != nil {
			return err
		}
	}
	return nil
}

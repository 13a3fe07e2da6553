// Package ports finds addresses for processes that must have the same one in every life. A port that the kernel gave for
// ":0" is no such address: once its listener is closed, any connection on the machine may be given the port. Used by tests
// and harnesses only.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The kernel hands out ports from 32768 on by itself (ip(7), ip_local_port_range); below it only those who ask for a port by
// its number take it.
const (
	lowest = 20000
	end    = 32000
	tries  = 100
)

// ErrNone: no run of ports that long was free in many tries.
var ErrNone = errors.New("ports: no free ports")

// Run finds count adjacent ports of 127.0.0.1 that are free now, and returns the first of them.
func Run(count int) (base int, err error) {
	for range tries {
		base = lowest + rand.IntN(end-lowest-count)
		if err = free(base, count); err == nil {
			return base, nil
		}
	}
	return 0, fmt.Errorf("%w: %d adjacent ones from %d to %d: %w", ErrNone, count, lowest, end, err)
}

// Addr is an address of 127.0.0.1 that is free now.
func Addr() (string, error) {
	port, err := Run(1)
	return Local(port), err
}

// Local is the address of a port of 127.0.0.1.
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func free(base, count int) error {
	for port := base; port < base+count; port++ {
		l, err := net.Listen("tcp", Local(port))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

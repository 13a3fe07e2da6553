package ports_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/percolator-go/percolator/internal/ports"
)

const child = "PERCOLATOR_PORTS_CHILD"

// TestMain: as a child, it prints its ports, one per line, and waits until its input ends.
func TestMain(m *testing.M) {
	count, err := strconv.Atoi(os.Getenv(child))
	if err != nil {
		os.Exit(m.Run())
	}
	for range count {
		base, err := ports.Run(1)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(base)
	}
	fmt.Println("done")
	_, _ = os.Stdin.Read(make([]byte, 1)) // waits for its end
}

// TestNobodyElse: concurrent processes get different ports, also ones not listened on yet.
func TestNobodyElse(t *testing.T) {
	const processes, each = 6, 100
	given := map[string]int{}
	for p := range processes {
		c := exec.Command(os.Args[0])
		c.Env, c.Stderr = append(os.Environ(), fmt.Sprintf("%s=%d", child, each)), os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
		lines, count := bufio.NewScanner(out), 0
		for ; lines.Scan() && lines.Text() != "done"; count++ {
			if before, ok := given[lines.Text()]; ok {
				t.Errorf("port %s is given to processes %d and %d", lines.Text(), before, p)
			}
			given[lines.Text()] = p
		}
		if count != each {
			t.Fatalf("process %d was given %d ports", p, count)
		}
	}
}

// TestTaken: a run of ports contains none in use.
func TestTaken(t *testing.T) {
	first, err := ports.Run(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenPacket("udp", ports.Local(first+2)) // within the next run
	if err != nil {
		t.Skip(err) // another process has it
	}
	defer func() { _ = l.Close() }()
	base, err := ports.Run(3)
	if err != nil || base <= first+2 && first+2 < base+3 {
		t.Errorf("%d to %d were given, with %d taken: %v", base, base+2, first+2, err)
	}
	if _, err := ports.Run(64); !errors.Is(err, ports.ErrNone) {
		t.Errorf("a run of 64: %v", err)
	}
}

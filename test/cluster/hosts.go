package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Hosts are the simulated machines of a cluster: network namespaces on one bridge, reachable
// from this process.
type Hosts struct {
	prefix string
	subnet string // "10.x.y."
	count  int
}

// ErrUnable is wrapped by errors of faults that this machine cannot inject: without root, or
// without a tool.
var ErrUnable = errors.New("cluster: not possible here")

// NewHosts creates count hosts. It needs root, ip, iptables and nsenter.
func NewHosts(count int) (*Hosts, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: network namespaces need root", ErrUnable)
	}
	for _, tool := range []string{"ip", "iptables", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %s is missing (Debian: iproute2, iptables, util-linux)",
				ErrUnable, tool)
		}
	}
	if err := sweep(); err != nil {
		return nil, err
	}
	pid := os.Getpid()
	h := &Hosts{
		prefix: fmt.Sprintf("pc%d", pid), subnet: fmt.Sprintf("10.%d.%d.", 64+pid%64, pid/64%256),
	}
	if err := h.make(count); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *Hosts) make(count int) error {
	bridge := h.prefix + "b"
	steps := []string{
		"ip link add " + bridge + " type bridge",
		"ip addr add " + h.subnet + "1/24 dev " + bridge,
		"ip link set " + bridge + " up",
	}
	for i := range count {
		ns, outer, inner := h.Namespace(i), fmt.Sprintf("%sv%d", h.prefix, i),
			fmt.Sprintf("%sw%d", h.prefix, i)
		steps = append(steps,
			"ip netns add "+ns,
			"ip link add "+outer+" type veth peer name "+inner,
			"ip link set "+outer+" master "+bridge+" up",
			"ip link set "+inner+" netns "+ns,
			"ip -n "+ns+" addr add "+h.Addr(i)+"/24 dev "+inner,
			"ip -n "+ns+" link set "+inner+" up",
			"ip -n "+ns+" link set lo up",
		)
	}
	h.count = count
	for _, step := range steps {
		if err := run(step); err != nil {
			return err
		}
	}
	return nil
}

// Namespace returns the name of a host's network namespace.
func (h *Hosts) Namespace(i int) string { return fmt.Sprintf("%sn%d", h.prefix, i) }

// Addr returns the address of a host.
func (h *Hosts) Addr(i int) string { return fmt.Sprintf("%s%d", h.subnet, 10+i) }

// Cut drops all packets from one host to another, in this direction only.
func (h *Hosts) Cut(from, to int) error {
	return run("ip netns exec " + h.Namespace(to) + " iptables -w -A INPUT -s " + h.Addr(from) +
		" -j DROP")
}

// Split partitions the hosts of the first group from all others, in both directions.
func (h *Hosts) Split(group ...int) error {
	in := map[int]bool{}
	for _, i := range group {
		in[i] = true
	}
	var errs []error
	for a := range h.count {
		for b := range h.count {
			if in[a] != in[b] {
				errs = append(errs, h.Cut(a, b))
			}
		}
	}
	return errors.Join(errs...)
}

// Heal removes all cuts.
func (h *Hosts) Heal() error {
	var errs []error
	for i := range h.count {
		errs = append(errs, run("ip netns exec "+h.Namespace(i)+" iptables -w -F INPUT"))
	}
	return errors.Join(errs...)
}

// Close removes the hosts. Nothing may run on them.
func (h *Hosts) Close() error {
	var errs []error
	for i := range h.count {
		// The link first: otherwise the kernel removes its other end, and frees its name,
		// only some time after the namespace is gone.
		errs = append(errs, run(fmt.Sprintf("ip link del %sv%d", h.prefix, i)),
			run("ip netns del "+h.Namespace(i)))
	}
	return errors.Join(append(errs, run("ip link del "+h.prefix+"b"))...)
}

// sweep removes the hosts of processes that were killed before they could. Removing a namespace
// removes its links.
func sweep() error {
	var errs []error
	remove := func(entries []string, pattern, command string) {
		for _, name := range entries {
			var pid int
			if _, err := fmt.Sscanf(name, pattern, &pid); err == nil &&
				syscall.Kill(pid, 0) != nil {
				errs = append(errs, run(command+name))
			}
		}
	}
	remove(names("/run/netns"), "pc%dn", "ip netns del ")
	remove(names("/sys/class/net"), "pc%db", "ip link del ")
	return errors.Join(errs...)
}

// names returns the entries of a directory, none if it does not exist.
func names(dir string) (out []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func run(line string) error {
	words := strings.Fields(line)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("cluster: %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

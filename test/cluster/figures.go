package cluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Metrics returns the node's metrics by name and labels, as in name{label="value"}. A metric with a
// space in a label is missing.
func (p *Process) Metrics(ctx context.Context) (map[string]float64, error) {
	text, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = v
		}
	}
	return out, nil
}

// tick is the unit of processor time in /proc: 100 per second on all platforms of Go.
const tick = time.Second / 100

// CPU returns the node's processor time, user and system.
func (p *Process) CPU() (time.Duration, error) { return CPU(p.PID()) }

// CPU returns the processor time of a running process, user and system, in units of 10 ms.
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return ticks(strings.Fields(rest)[11:13]) // fields 14 and 15 of proc(5), utime and stime
}

// MachineCPU returns the processor time of all processes of the machine, and the time that its
// host has stolen.
func MachineCPU() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	// cpu user nice system idle iowait irq softirq steal
	fields := strings.Fields(first)
	return ticks(append(fields[1:4:4], fields[6:min(9, len(fields))]...))
}

func ticks(fields []string) (sum time.Duration, err error) {
	for _, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// Memory returns a field of the node's /proc/PID/status in bytes: VmRSS is the resident
// memory, RssAnon the part of it that is not file-backed.
func (p *Process) Memory(field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, field+":"); is {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("cluster: /proc/%d/status has no %s", p.PID(), field)
}

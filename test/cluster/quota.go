package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// cpuGroups is the directory of CPU quotas in version 1 of cgroups.
const cpuGroups = "/sys/fs/cgroup/cpu"

// quotaPeriod is the kernel's default period of a CPU quota, in microseconds.
const quotaPeriod = 100_000

func groupOf(p *Process) string {
	return filepath.Join(cpuGroups, fmt.Sprintf("percolator-test-%d-%d", os.Getpid(), p.Index))
}

// limit applies the configured CPU quota to a node that has just started.
func (c *Cluster) limit(p *Process) error {
	if c.cfg.CPUs == 0 {
		return nil
	}
	return p.Quota(c.cfg.CPUs)
}

// Quota limits the running node to a number of CPUs, to simulate a slow machine. It needs root.
func (p *Process) Quota(cpus float64) error {
	if !p.Running() {
		return ErrNotRunning
	}
	group := groupOf(p)
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: CPU quota: %w", ErrUnable, err)
	}
	quota := strconv.Itoa(int(cpus * quotaPeriod))
	return errors.Join(
		os.WriteFile(filepath.Join(group, "cpu.cfs_quota_us"), []byte(quota), 0o644),
		os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(p.PID())), 0o644),
	)
}

// EndQuota removes the node's CPU quota.
func (p *Process) EndQuota() error {
	return os.WriteFile(filepath.Join(groupOf(p), "cpu.cfs_quota_us"), []byte("-1"), 0o644)
}

// memoryGroups is the directory of memory limits in version 1 of cgroups.
const memoryGroups = "/sys/fs/cgroup/memory"

func memoryGroupOf(p *Process) string {
	return filepath.Join(memoryGroups, filepath.Base(groupOf(p)))
}

// confined creates the node's memory cgroup, and returns a command line that enters it before it
// executes words: a node reads its memory limit when it starts.
func (p *Process) confined(words []string) ([]string, error) {
	group := memoryGroupOf(p)
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: memory limit: %w", ErrUnable, err)
	}
	limit := strconv.FormatInt(p.cluster.cfg.Memory, 10)
	if err := os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte(limit),
		0o644); err != nil {
		return nil, fmt.Errorf("%w: memory limit: %w", ErrUnable, err)
	}
	enter := `echo $$ >"$0" && exec "$@"`
	return append([]string{"sh", "-c", enter, filepath.Join(group, "cgroup.procs")}, words...), nil
}

// removeGroup removes the node's cgroups, if it has any. Its process must have ended.
func removeGroup(p *Process) error {
	for _, group := range []string{groupOf(p), memoryGroupOf(p)} {
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

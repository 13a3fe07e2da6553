package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// cpuGroups is where version 1 of cgroups keeps CPU quotas.
const cpuGroups = "/sys/fs/cgroup/cpu"

// quotaPeriod is the kernel's default, in microseconds.
const quotaPeriod = 100_000

func groupOf(p *Process) string {
	return filepath.Join(cpuGroups, fmt.Sprintf("percolator-test-%d-%d", os.Getpid(), p.Index))
}

// limit gives a node that has just started the cluster's quota.
func (c *Cluster) limit(p *Process) error {
	if c.cfg.CPUs == 0 {
		return nil
	}
	return p.Quota(c.cfg.CPUs)
}

// Quota lets the running node have so many CPUs at most from now on; a slow machine. It needs root.
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

// EndQuota gives the node all CPUs again.
func (p *Process) EndQuota() error {
	return os.WriteFile(filepath.Join(groupOf(p), "cpu.cfs_quota_us"), []byte("-1"), 0o644)
}

// removeGroup removes the node's cgroup, if it has one. Its process must have ended.
func removeGroup(p *Process) error {
	if err := os.Remove(groupOf(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

package figure8

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// errUnable is wrapped by errors of confine on machines without the privileges.
var errUnable = errors.New("a memory limit needs root and version 1 of cgroups")

// confine puts this process into a memory cgroup, which limits its part of the page cache too,
// until leave is called.
func confine(limit int64) (leave func() error, err error) {
	const groups = "/sys/fs/cgroup/memory"
	before, err := memoryGroup()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnable, err)
	}
	group := filepath.Join(groups, fmt.Sprintf("percolator-evaluation-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnable, err)
	}
	enter := func(group string) error {
		return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
	}
	heap := debug.SetMemoryLimit(limit / 2) // the other half is for the page cache
	leave = func() error {
		debug.SetMemoryLimit(heap)
		return errors.Join(enter(filepath.Join(groups, before)), os.Remove(group))
	}
	err = os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte(strconv.FormatInt(limit, 10)), 0o644)
	if err = errors.Join(err, enter(group)); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnable, errors.Join(err, leave()))
	}
	return leave, nil
}

// memoryGroup returns this process's own memory cgroup.
func memoryGroup() (string, error) {
	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// hierarchy:controllers:path
		if fields := strings.SplitN(lines.Text(), ":", 3); len(fields) == 3 && fields[1] == "memory" {
			return fields[2], nil
		}
	}
	return "", errors.New("/proc/self/cgroup names no memory controller")
}

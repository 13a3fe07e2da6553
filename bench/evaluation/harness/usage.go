package harness

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/disk"
)

// CPUOf returns the processor time, user and system, of running processes, in units of 10 ms; one
// that has ended counts as 0. Without pids it returns this process's own, exactly.
func CPUOf(pids ...int) (sum time.Duration) {
	if len(pids) == 0 {
		return turns.CPU()
	}
	for _, pid := range pids {
		if cpu, err := cluster.CPU(pid); err == nil {
			sum += cpu
		}
	}
	return sum
}

// DeviceBytes returns the bytes written so far to the block device under path, by all programs: a
// measurement uses a file system of its own (test/disk), or subtracts what the idle machine writes.
func DeviceBytes(path string) (int64, error) { return disk.Written(path) }

// Machine describes where a measurement ran.
type Machine struct {
	CPU    string  `json:"cpu"`
	CPUs   int     `json:"cpus"`
	Memory int64   `json:"memory"` // bytes
	Kernel string  `json:"kernel"`
	Disk   string  `json:"disk"`  // device and file system of the scratch directory
	Fsync  float64 `json:"fsync"` // ms, median of fsyncs after writes of 4 KiB
	Load   float64 `json:"load"`  // runnable tasks, mean of the minute before the measurement
	Go     string  `json:"go"`
}

// String describes the machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%d × %s, %d GiB, Linux %s, %s (fsync %.2f ms), %s", m.CPUs, m.CPU, m.Memory>>30, m.Kernel,
		m.Disk, m.Fsync, m.Go)
}

// machine describes this machine; what cannot be read is left empty.
func machine(dir string) Machine {
	m := Machine{CPU: cpuModel(), CPUs: runtime.NumCPU(), Go: runtime.Version(), Disk: diskOf(dir), Fsync: fsyncMillis(dir)}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = string(bytes.TrimRight(u.Release[:], "\x00"))
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &m.Load)
	}
	return m
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}

// diskOf names the device and the file system under dir.
func diskOf(dir string) string {
	var s unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(dir, &s) != nil || unix.Statfs(dir, &fs) != nil {
		return ""
	}
	device := "no block device"
	if link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))); err == nil {
		device = filepath.Base(link)
	}
	kinds := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	}
	return cmp.Or(kinds[fs.Type], fmt.Sprintf("%#x", fs.Type)) + " on " + device
}

// fsyncMillis measures a sync of the disk; 0 if it fails.
func fsyncMillis(dir string) float64 {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return 0
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	var took []float64
	for range 21 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0
		}
		if err := f.Sync(); err != nil {
			return 0
		}
		took = append(took, time.Since(began).Seconds()*1000)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

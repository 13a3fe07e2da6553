package device

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/percolator-go/percolator/test/disk"
)

// indexPages runs the web index's demo, which loads its pages into a node, waits until they are
// indexed and exported, and exits. The measurement covers the whole process, from an empty
// directory, since it prints nothing in between.
func indexPages(ctx context.Context, o options, d *disk.Disk, binary, dir string) (figure, error) {
	before, err := written(d)
	if err != nil {
		return figure{}, err
	}
	cmd := exec.CommandContext(ctx, binary, "--exit", "--quiet", "--dir", dir, "--pages", o.pages,
		"--limit", strconv.Itoa(o.limit))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout // after SIGTERM; then it is killed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	summary, err := cmd.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		return figure{}, fmt.Errorf("the web index: %w: %s", err, failed.Stderr)
	} else if err != nil {
		return figure{}, err
	}
	f := figure{took: time.Since(began)}
	if f.transactions, err = transactions(summary); err != nil {
		return figure{}, err
	}
	f.cells, f.cellBytes = cells(summary)
	if f.written, err = written(d); err != nil {
		return figure{}, err
	}
	f.written -= before
	f.loaded = f.written
	f.cpu, f.resident = used(cmd.ProcessState)
	return f, nil
}

// cells returns the cells that the loader and the observers have written and the bytes of their rows,
// columns and values, from the summary's line "written: 353881 cells of 70123456 bytes"; 0 if a
// build prints none.
func cells(summary []byte) (n, size int64) {
	for s := bufio.NewScanner(bytes.NewReader(summary)); s.Scan(); {
		if _, err := fmt.Sscanf(s.Text(), "written: %d cells of %d bytes", &n, &size); err == nil {
			return n, size
		}
	}
	return 0, 0
}

// transactions returns the number of pages loaded plus that of the observers' commits, from the
// summary:
//
//	loaded 8381 pages (0 unchanged, 0 removed) in 2.1s; indexed after 43.2s
//	observer        runs   commits conflicts  failures
//	process         8381      8381         0         0
func transactions(summary []byte) (int, error) {
	sum, table := 0, false
	for s := bufio.NewScanner(bytes.NewReader(summary)); s.Scan(); {
		words := strings.Fields(s.Text())
		at := -1 // index of the number among the line's words; -1: the line has none
		switch {
		case len(words) > 2 && words[0] == "loaded" && words[2] == "pages":
			at = 1
		case table && len(words) == 5:
			at = 2
		}
		table = table || len(words) == 5 && words[0] == "observer" && words[2] == "commits"
		if at < 0 {
			continue
		}
		n, err := strconv.Atoi(words[at])
		if err != nil {
			return 0, fmt.Errorf("the web index's summary: %w", err)
		}
		sum += n
	}
	if sum == 0 || !table {
		return 0, errors.New("no number of transactions in the summary that webindex printed")
	}
	return sum, nil
}

//go:build race && unix

package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// suppressRaces starts the tests anew where the race detector was not told what it is to
// leave out: it reads that when the process starts, and each test opens nodes of its own
// in this one. testdata/race has the list.
func suppressRaces() {
	options := os.Getenv("GORACE")
	list, err := filepath.Abs("testdata/race")
	if err == nil {
		_, err = os.Stat(list)
	}
	self, unknown := os.Executable()
	if err = errors.Join(err, unknown); err == nil && !strings.Contains(options, "suppressions=") {
		err = syscall.Exec(self, os.Args,
			append(os.Environ(), fmt.Sprintf("GORACE=%s suppressions='%s'", options, list)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the race detector will report gRPC's logger:", err)
	}
}

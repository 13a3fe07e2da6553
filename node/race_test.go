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

// suppressRaces re-executes the tests if the race detector has no list of reports to suppress: it
// reads the list when the process starts, and each test opens nodes in this process. testdata/race
// has the list.
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

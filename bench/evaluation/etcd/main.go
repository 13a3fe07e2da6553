// Command etcd measures one and 64 callers on three processes of one or more builds, beside three of
// etcd, with and without TLS, and fail-over: see package peers/cluster.
//
//	cd bench/evaluation && go run ./etcd -builds ../../bin                 64 callers and one
//	cd bench/evaluation && go run ./etcd -builds ../../base,../../bin -callers 1 -tls off
package main

import (
	"fmt"
	"os"

	"github.com/percolator-go/percolator/bench/evaluation/peers/cluster"
)

func main() {
	if served, err := cluster.Member(); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	} else if served {
		return
	}
	cluster.Main()
}

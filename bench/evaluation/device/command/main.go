// Command command measures the bytes written to the block device, of builds in turns: make device.
package main

import (
	"github.com/percolator-go/percolator/bench/evaluation/device"
	"github.com/percolator-go/percolator/bench/turns"
)

func main() { turns.Main("device", device.Command) }

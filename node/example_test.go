package node_test

import (
	"fmt"
	"time"

	"github.com/percolator-go/percolator/node"
)

func ExampleBatchConfig() {
	cfg := node.DefaultConfig()
	cfg.Batch.Tablet = node.BatchConfig{MaxMessages: 256, Linger: time.Millisecond}
	fmt.Println(cfg.Batch.Tablet.MaxMessages, cfg.Batch.Tablet.Linger)
	// Output: 256 1ms
}

package node

import (
	"context"
	"sync"
)

// background runs the node's goroutines other than those of its actors, its servers and joining,
// such as the worker of changes (changes.go), the periodic readers of meta, and the responder to
// other nodes' requests. Open starts them once meta has answered, except runLiveness, which starts
// before the replicas; Drain stops them before the parts that they use.
type background struct {
	ctx    context.Context // of all goroutines
	cancel context.CancelFunc
	runs   sync.WaitGroup
}

func newBackground(life context.Context) *background {
	b := &background{}
	b.ctx, b.cancel = context.WithCancel(life)
	return b
}

// start starts a goroutine for each function. They must return when ctx ends.
func (b *background) start(functions ...func(ctx context.Context)) {
	for _, run := range functions {
		b.runs.Go(func() { run(b.ctx) })
	}
}

// stop ends the goroutines and waits for them.
func (b *background) stop() {
	b.cancel()
	b.runs.Wait()
}

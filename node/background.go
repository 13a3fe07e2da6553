package node

import (
	"context"
	"sync"
)

// background runs the goroutines that the node has beside those of its actors and servers:
// the worker of changes, those that read meta from time to time, and the one that answers
// other nodes' requests. Open's goroutine starts them once meta has answered; Drain stops
// them, before the parts that they use end. It owns nothing else.
type background struct {
	ctx    context.Context // of all of them
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

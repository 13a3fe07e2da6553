package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// plainEvery is the interval between lines where there is no terminal for a progress bar.
const plainEvery = 2 * time.Second

// progress displays the progress of a known amount of work, with its rate and the remaining time:
// as a bar on a terminal, as plain lines elsewhere. Its methods may be used concurrently.
type progress struct {
	name  string
	total int
	quiet bool
	began time.Time

	bars *mpb.Progress // nil: plain lines
	bar  *mpb.Bar

	mu   sync.Mutex
	done int
	last time.Time
}

// newProgress returns a progress that starts now. With quiet it displays nothing.
func newProgress(name string, total int, quiet bool) *progress {
	now := time.Now()
	p := &progress{name: name, total: total, quiet: quiet, began: now, last: now}
	if quiet || !terminal(os.Stdout) {
		return p
	}
	p.bars = mpb.New(mpb.WithOutput(os.Stdout), mpb.WithWidth(64))
	p.bar = p.bars.AddBar(int64(total),
		mpb.PrependDecorators(decor.Name(name+" "), decor.CountersNoUnit("%d/%d")),
		mpb.AppendDecorators(
			decor.AverageSpeed(0, "%.0f pages/s"), decor.Name(", "),
			decor.AverageETA(decor.ET_STYLE_GO), decor.Name(" left"),
		),
	)
	return p
}

// terminal reports whether f is a terminal.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// add adds n to the completed work.
func (p *progress) add(n int) {
	if p.bar != nil {
		p.bar.IncrBy(n)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if now := time.Now(); !p.quiet && now.Sub(p.last) >= plainEvery {
		p.last = now
		p.print()
	}
}

func (p *progress) print() {
	took := time.Since(p.began)
	rate := float64(p.done) / max(took.Seconds(), 1e-3)
	left := time.Duration(float64(p.total-p.done) / max(rate, 1e-3) * float64(time.Second))
	fmt.Printf("%s %d/%d (%d%%), %.0f pages/s, %s left\n",
		p.name, p.done, p.total, 100*p.done/max(p.total, 1), rate, left.Round(time.Second))
}

// end displays the final state.
func (p *progress) end() {
	if p.bar != nil {
		p.bar.SetTotal(-1, true) // also if the work was broken off
		p.bars.Wait()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.quiet {
		p.print()
	}
}

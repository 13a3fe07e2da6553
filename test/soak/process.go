package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// startTimeout bounds how long a node may take from its start to "ready".
const startTimeout = time.Minute

// process is a node as a child process. Its methods belong to one goroutine.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // what it says; closed at its end
	http  string
	took  time.Duration // from its start to "ready"
}

// spawn starts this program again with an order; what it says on standard error is
// appended to the log. A child ends when its standard input does, so none outlives the
// soak for long.
func spawn(o order, log *os.File) (*process, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self), lines: make(chan string, 16)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // joined by end: it ends with the child's output, which the channel's close tells
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	line, err := p.hear(startTimeout)
	if err != nil {
		return nil, errors.Join(err, lastWords(log.Name()), p.kill())
	}
	p.took = time.Since(began)
	p.http = strings.TrimPrefix(line, "ready ")
	return p, nil
}

// lastWords are the last lines of a log, as an error.
func lastWords(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const enough = 2000 // bytes
	return fmt.Errorf("%s ends with: %s", file, text[max(0, len(text)-enough):])
}

// hear returns the child's next line.
func (p *process) hear(within time.Duration) (string, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", errors.New("soak: the child process has ended by itself; see node.log")
		}
		return line, nil
	case <-timer.C:
		return "", fmt.Errorf("soak: the child process said nothing within %v", within)
	}
}

// collect makes the node free its garbage.
func (p *process) collect() error {
	if _, err := io.WriteString(p.in, "gc\n"); err != nil {
		return err
	}
	_, err := p.hear(startTimeout)
	return err
}

// kill ends the child at once, as kill -9 does.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.end() // it was killed, which Wait calls an error
	return nil
}

// stop lets a node end in its own time, and reports if it did not do so cleanly.
func (p *process) stop() error {
	_ = p.in.Close()
	timer := time.AfterFunc(startTimeout, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if err := p.end(); err != nil {
		return fmt.Errorf("soak: the node did not end cleanly: %w", err)
	}
	return nil
}

// end waits for the child's end and joins its reader.
func (p *process) end() error {
	for range p.lines { // until the pipe is closed: Wait may only be called then
	}
	return p.cmd.Wait()
}

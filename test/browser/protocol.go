package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// endTimeout bounds the end of a browser that was asked to close.
const endTimeout = 10 * time.Second

// conn speaks the Chrome DevTools Protocol with one tab of a browser: JSON messages over two
// pipes, each ended by a zero byte.
type conn struct {
	cmd     *exec.Cmd
	to      *os.File
	session string // of the tab
	note    func(method string, params json.RawMessage)
	ended   chan struct{} // closed when the browser closes its pipe

	mu    sync.Mutex
	calls int
	await map[int]chan message
}

// message is a call, an answer or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// launch starts a browser on an empty profile, and opens a tab. note is called with each event, on
// one goroutine.
func launch(ctx context.Context, path, profile string,
	note func(method string, params json.RawMessage)) (*conn, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	events, answers, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	c := &conn{to: write, note: note, ended: make(chan struct{}), await: map[int]chan message{}}
	c.cmd = exec.CommandContext(ctx, path, "--remote-debugging-pipe", "--user-data-dir="+profile, "--headless",
		"--no-sandbox", "--disable-gpu", "--no-first-run", "--no-default-browser-check", "--hide-scrollbars",
		"--disable-component-update", "--disable-background-networking", "--disable-sync", "--disable-extensions",
		"--disable-dev-shm-usage", "--disable-renderer-backgrounding", "--disable-background-timer-throttling",
		"--disable-features=Translate", "--force-color-profile=srgb", "--password-store=basic", "about:blank")
	c.cmd.ExtraFiles = []*os.File{read, answers} // 3, calls, and 4, answers, in the browser
	err = c.cmd.Start()
	_, _ = read.Close(), answers.Close()
	if err != nil {
		return nil, errors.Join(err, write.Close(), events.Close())
	}
	go c.receive(events)
	return c, c.openTab(ctx)
}

func (c *conn) openTab(ctx context.Context) error {
	var target struct{ TargetID string }
	if err := c.call(ctx, "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var attached struct{ SessionID string }
	if err := c.call(ctx, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&attached); err != nil {
		return err
	}
	c.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := c.call(ctx, domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	if err := c.call(ctx, "Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil); err != nil {
		return err
	}
	return c.call(ctx, "Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
}

// receive passes on answers and events until the browser ends.
func (c *conn) receive(events *os.File) {
	defer close(c.ended)
	for r := bufio.NewReader(events); ; {
		text, err := r.ReadBytes(0)
		var m message
		if err != nil || json.Unmarshal(text[:len(text)-1], &m) != nil {
			_ = events.Close()
			return
		}
		if m.ID == 0 {
			c.note(m.Method, m.Params)
			continue
		}
		c.mu.Lock()
		answered := c.await[m.ID]
		delete(c.await, m.ID)
		c.mu.Unlock()
		answered <- m
	}
}

// call calls a method with its parameters and reads its result, unless result is nil.
func (c *conn) call(ctx context.Context, method string, params map[string]any, result any) error {
	m := message{Method: method, SessionID: c.session}
	answered := make(chan message, 1)
	if params != nil {
		m.Params, _ = json.Marshal(params) // succeeds: maps of texts, numbers and flags
	}
	c.mu.Lock()
	c.calls++
	m.ID = c.calls
	c.await[m.ID] = answered
	text, err := json.Marshal(m)
	if err == nil {
		_, err = c.to.Write(append(text, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m = <-answered:
	case <-c.ended:
		return fmt.Errorf("%s: the browser has ended", method)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
	if m.Error != nil {
		return fmt.Errorf("%s: %s", method, m.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(m.Result, result)
}

// close ends the browser and waits for its process, which writes its profile until then.
func (c *conn) close() error {
	c.session = ""
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	err := c.call(ctx, "Browser.close", nil, nil)
	select {
	case <-c.ended:
	case <-ctx.Done():
		err = errors.Join(err, c.cmd.Process.Kill())
	}
	return errors.Join(err, c.cmd.Wait(), c.to.Close())
}

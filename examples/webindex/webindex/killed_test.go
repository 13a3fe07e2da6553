package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// asCommand in the environment makes the test binary run the command.
const asCommand = "WEBINDEX_COMMAND"

// TestKilled kills the command (kill -9) up to three times at random moments of loading and
// indexing, restarts it in the same directory, and requires that its final index equals the batch
// program's, and the full-text index the repository's content. KILLED sets the number of seeds;
// every other one also crawls an edited tree.
func TestKilled(t *testing.T) {
	seeds, err := strconv.Atoi(os.Getenv("KILLED"))
	if err != nil {
		t.Skip("make webindex-kill sets KILLED: each seed takes seconds of all processors")
	}
	pages, work := sample(t, 6), t.TempDir()
	began := time.Now()
	runAndKill(t, filepath.Join(work, "whole"), pages, true, time.Hour, false)
	whole := time.Since(began)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed+1), 3))
		dir, edit := filepath.Join(work, fmt.Sprint(seed)), seed%2 == 1
		for range 1 + rng.IntN(3) {
			after := time.Duration(rng.Int64N(int64(whole)))
			if rng.IntN(2) == 0 { // while pages are loaded
				after /= 5
			}
			runAndKill(t, dir, pages, edit, after, rng.IntN(3) > 0)
		}
		runAndKill(t, dir, pages, edit, time.Hour, false)
	}
}

// runAndKill runs the command and kills it after a while; with aim, at the first write to the full-text
// index, when a batch is about to be durable and its exports are not acknowledged. The test fails
// if the command itself ends with an error.
func runAndKill(t *testing.T, dir, pages string, edit bool, after time.Duration, aim bool) {
	t.Helper()
	args := []string{"--exit", "--verify", "--quiet", "--pages", pages, "--dir", dir}
	if edit {
		args = append(args, "--edit", "3%")
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // received below
	kill, began := time.After(after), time.Now()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out.Bytes())
		}
		return
	case <-kill:
	}
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for before := written(dir); aim && written(dir).Equal(before) && time.Since(began) < after+3*time.Second; {
		<-tick.C
	}
	_ = cmd.Process.Kill() // it may have just ended
	<-ended
	t.Logf("%s: killed after %v", dir, time.Since(began).Round(time.Millisecond))
}

// written returns the time of the last write to the full-text index next to the node's directory.
func written(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir+".search", "store", "root.bolt"))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

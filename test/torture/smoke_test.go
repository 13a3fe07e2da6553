package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/torture/soak"
)

func TestMain(m *testing.M) {
	cluster.Main(observers)
	victim()
	os.Exit(m.Run())
}

// TestSmoke runs all workloads on one cluster of three processes under the most common faults, one
// after the other, with leases on and off in turn.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes for a minute")
	}
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, tool := range []string{"ip", "iptables", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing (Debian: iproute2, iptables, util-linux)", tool)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "run")
	chosen, err := choose("kill-one,pause-oracle,partition-one,kill-client,rolling-restart")
	if err != nil {
		t.Fatal(err)
	}
	a, err := open(ctx, options{duration: 8 * time.Second, seed: 1, nodes: 3}, fault{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	for i, f := range chosen {
		if err := a.setLeases(ctx, i%2 == 0); err != nil {
			t.Fatal(err)
		}
		r := &result{fault: f.name}
		a.log("%s", f.name)
		a.round(ctx, f, r)
		a.rest(ctx, r)
		t.Log(r.row())
		if r.strikes == 0 || r.counts.Done == 0 || r.replicas == 0 {
			t.Errorf("%s: nothing was done: %+v", f.name, r)
		}
		if err := r.all(); err != nil {
			t.Errorf("%s: %v", f.name, err)
			break
		}
	}
	if !t.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, name := range logs { // the directory is deleted with the test
		text, err := os.ReadFile(name)
		t.Logf("%s: %v\n%s", filepath.Base(name), err, text)
	}
}

// TestSoak is a soak of seconds.
func TestSoak(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	chosen, err := choose("soak")
	if err != nil {
		t.Fatal(err)
	}
	o := options{duration: *soakTime, seed: *soakSeed, soak: soak.Options{
		Warm: *soakTime / 2, History: 4 * time.Second, Docs: 150, Tablets: 18,
	}}
	r := run(ctx, o, chosen[0], filepath.Join(t.TempDir(), "run"))
	t.Log(r.row())
	if err := r.all(); err != nil || r.counts.Done == 0 || r.replicas == 0 {
		t.Errorf("%+v: %v", r, err)
	}
}

var (
	soakTime = flag.Duration("soak", 10*time.Second, "how long TestSoak soaks")
	soakSeed = flag.Uint64("seed", 1, "of its choices")
)

// TestChoose: unknown names of faults and unknown settings of leases are refused; no name means all
// faults.
func TestChoose(t *testing.T) {
	if all, err := choose(""); err != nil || len(all) != len(faults) {
		t.Errorf("no names choose %d of %d: %v", len(all), len(faults), err)
	}
	if two, err := choose("pause,kill-one"); err != nil || len(two) != 2 || two[0].name != "pause" {
		t.Errorf("%v, %v", two, err)
	}
	if _, err := choose("pause,kindness"); err == nil {
		t.Error("a fault that there is not was chosen")
	}
	pause, _ := choose("pause")
	for leases, want := range map[string]string{
		"on": "[pause]", "off": "[pause-without-leases]", "both": "[pause pause-without-leases]",
	} {
		got, err := chooseLeases(pause, leases)
		var names []string
		for _, f := range got {
			names = append(names, f.name)
		}
		if fmt.Sprint(names) != want || err != nil {
			t.Errorf("leases %s: %v, %v, want %s", leases, names, err, want)
		}
	}
	if _, err := chooseLeases(pause, "short"); err == nil {
		t.Error("leases that are neither on nor off were chosen")
	}
}

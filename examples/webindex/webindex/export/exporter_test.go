package export

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/blevesearch/bleve/v2"
	"go.uber.org/goleak"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/internal/leaktest"
)

// childEnv passes the index directory to the process that TestAcknowledgedIsDurable kills.
const childEnv = "WEBINDEX_EXPORT_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
	}
	// Bleve's analysis workers belong to the process.
	leaktest.Main(m, goleak.IgnoreTopFunction(
		"github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

func opened(t *testing.T, dir string) *Index {
	t.Helper()
	x, err := openIndex(dir, "cluster", false)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// started returns an exporter over a new index in dir.
func started(t *testing.T, dir string) *Exporter {
	t.Helper()
	x := New()
	index := opened(t, dir)
	x.start(index, index, 0)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// put returns a version of a page whose title contains the version.
func put(url string, version percolator.Timestamp) Change {
	return Change{Row: url, Version: version, Value: Document{
		URL: url, Title: fmt.Sprintf("version %d", version), Text: "Some text.",
		Anchors:  []string{"a link", "another"},
		Document: schema.Document{Hash: "hash", Rank: 1500, Linking: 2, Anchors: "digest"},
	}}
}

// export applies one change.
func (x *Exporter) export(ctx context.Context, c Change) error {
	return x.Apply(ctx, []Change{c})
}

func gone(url string, version percolator.Timestamp) Change {
	return Change{Row: url, Version: version, Gone: true}
}

// shows checks the title in the index for the URL; "" for none.
func (x *Index) shows(t *testing.T, url, want string) {
	t.Helper()
	d, ok, err := x.Lookup(url)
	if err != nil {
		t.Fatal(err)
	}
	if ok != (want != "") || d.Title != want {
		t.Errorf("%s: the index has %q, want %q", url, d.Title, want)
	}
}

func TestRepeatedAndLate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	x := started(t, dir)
	const url = "http://h.example/a.html"
	for _, step := range []struct {
		Change
		want  string
		stats Stats
	}{
		{put(url, 5), "version 5", Stats{Written: 1, Batches: 1}},
		{put(url, 5), "version 5", Stats{Written: 1, Batches: 1, Repeated: 1}},
		{put(url, 4), "version 5", Stats{Written: 1, Batches: 1, Repeated: 1, Stale: 1}},
		{gone(url, 3), "version 5", Stats{Written: 1, Batches: 1, Repeated: 1, Stale: 2}},
		{gone(url, 7), "", Stats{Written: 1, Removed: 1, Batches: 2, Repeated: 1, Stale: 2}},
		// the tombstone's version counts
		{put(url, 6), "", Stats{Written: 1, Removed: 1, Batches: 2, Repeated: 1, Stale: 3}},
		{put(url, 8), "version 8", Stats{
			Written: 2, Removed: 1, Batches: 3, Repeated: 1, Stale: 3,
		}},
	} {
		if err := x.export(t.Context(), step.Change); err != nil {
			t.Fatal(err)
		}
		x.index.shows(t, url, step.want)
		if got := x.Stats(); got != step.stats {
			t.Errorf("after version %d: %+v, want %+v", step.Version, got, step.stats)
		}
	}
	want := put(url, 8).Value
	have, _, err := x.index.Lookup(url)
	if err != nil || have.Text != want.Text || !slices.Equal(have.Anchors, want.Anchors) ||
		have.Document != want.Document {
		t.Errorf("%v: the index has %+v, want %+v", err, have, want)
	}
}

// After a restart, too, an older version does not return; tombstones are dropped then.
func TestReopened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	x := started(t, dir)
	for _, c := range []Change{put("http://h.example/a", 5), put("http://h.example/b", 6),
		gone("http://h.example/b", 7)} {
		if err := x.export(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	err := x.export(t.Context(), put("http://h.example/c", 8))
	if !errors.Is(err, percolator.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	again := started(t, dir)
	if err := errors.Join(again.export(t.Context(), put("http://h.example/a", 4)),
		again.index.bury(t.Context())); err != nil {
		t.Fatal(err)
	}
	again.index.shows(t, "http://h.example/a", "version 5")
	again.index.shows(t, "http://h.example/b", "")
	if n, err := again.index.bleve.DocCount(); err != nil || n != 1 {
		t.Errorf("%d entries, %v: want the page alone", n, err)
	}
}

// Concurrent exports of a few pages in any order, repeated and late: the newest version of each
// page stays.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 1))
		x := started(t, filepath.Join(t.TempDir(), "index"))
		want := map[string]Change{}
		var all []Change
		for version := percolator.Timestamp(1); version <= 300; version++ {
			url := fmt.Sprintf("http://h.example/%d", rng.IntN(12))
			c := put(url, version)
			if rng.IntN(4) == 0 {
				c = gone(url, version)
			}
			want[url] = c
			for range 1 + rng.IntN(2) {
				all = append(all, c)
			}
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var work sync.WaitGroup
		for part := range slices.Chunk(all, len(all)/16) {
			work.Go(func() {
				for _, c := range part {
					if err := x.export(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Wait()
		for _, url := range slices.Sorted(maps.Keys(want)) {
			title := ""
			if c := want[url]; !c.Gone {
				title = c.Value.Title
			}
			x.index.shows(t, url, title)
		}
		if s := x.Stats(); s.Written+s.Removed+s.Repeated+s.Stale != uint64(len(all)) {
			t.Errorf("seed %d: %+v does not account for %d exports", seed, s, len(all))
		}
	}
}

// failing is an index whose batches fail after they have become visible, as Bleve's may on a full
// disk.
type failing struct {
	*Index
	fail    int // number of batches
	applied int
}

func (f *failing) apply(changes []Change) error {
	f.applied++
	err := f.Index.apply(changes)
	if f.fail > 0 {
		f.fail--
		return errors.Join(errors.New("disk full"), err)
	}
	return err
}

// The remains of a failed batch do not count as durable: a repeated export is answered only after
// another batch.
func TestFailedBatchIsInDoubt(t *testing.T) {
	x := New()
	f := &failing{Index: opened(t, filepath.Join(t.TempDir(), "index")), fail: 2}
	x.start(f.Index, f, 0)
	t.Cleanup(func() { _ = x.Close() })
	const url = "http://h.example/a"
	for attempt := range 2 {
		if err := x.export(t.Context(), put(url, 5)); !errors.Is(err, percolator.ErrUnavailable) {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
	}
	if err := x.export(t.Context(), put(url, 5)); err != nil || f.applied != 3 {
		t.Errorf("%v after %d batches: want none, and 3", err, f.applied)
	}
	if err := x.export(t.Context(), put(url, 5)); err != nil || f.applied != 3 {
		t.Errorf("%v after %d batches: there was nothing left to write", err, f.applied)
	}
}

// slow is an index that reports each batch and waits for permission to write it.
type slow struct {
	*Index
	began, proceed chan struct{}
}

func (s slow) apply(changes []Change) error {
	s.began <- struct{}{}
	<-s.proceed
	return s.Index.apply(changes)
}

// One batch is written at a time: later callers wait, until their context ends. Close waits for the
// batch.
func TestOneAtATime(t *testing.T) {
	x := New()
	s := slow{opened(t, filepath.Join(t.TempDir(), "index")), make(chan struct{}),
		make(chan struct{})}
	x.start(s.Index, s, 0)
	first, closed := make(chan error, 1), make(chan error, 1)
	go func() { first <- x.export(t.Context(), put("http://h.example/a", 1)) }()
	<-s.began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.export(ctx, put("http://h.example/b", 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() { closed <- x.Close() }()
	close(s.proceed)
	if err := errors.Join(<-first, <-closed); err != nil {
		t.Error(err)
	}
}

// Only an index of this cluster and format is reused.
func TestForeignIndexIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	x := opened(t, dir)
	if err := errors.Join(x.apply([]Change{put("http://h.example/a", 1)}), x.setFilled(),
		x.Close()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		cluster string
		anew    bool
		want    uint64
	}{{"cluster", false, 1}, {"another", false, 0}, {"another", true, 0}} {
		x, err := openIndex(dir, step.cluster, step.anew)
		if err != nil {
			t.Fatal(err)
		}
		n, err := x.Count(t.Context())
		filled, err2 := x.filled()
		if err := errors.Join(err, err2, x.Close()); err != nil || n != step.want ||
			filled != (n > 0) {
			t.Errorf("%+v: %d documents, filled %v, %v", step, n, filled, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "index_meta.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := openIndex(dir, "another", false); !errors.Is(err, bleve.ErrorIndexMetaMissing) {
		t.Errorf("an index that can't be read: %v", err)
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// child exports one page and is killed as soon as the export is acknowledged.
func child(dir string) {
	index, err := openIndex(dir, "cluster", false)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	x := New()
	x.start(index, index, 0)
	if err := x.export(context.Background(), put("http://h.example/a", 5)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	die()
}

// An acknowledged export is in the index, also if the process is killed at that moment.
func TestAcknowledgedIsDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process was not killed: %v\n%s", err, out)
	}
	x := opened(t, dir)
	defer x.Close()
	if _, ok, err := x.Lookup("http://h.example/a"); err != nil || !ok {
		t.Errorf("assertion acknowledged-export-is-durable: the page is missing from the index (%v)", err)
	}
}

// emptyPages is a repository in which all pages have lost their content.
type emptyPages struct{ percolator.Reader }

func (emptyPages) GetMulti(context.Context, ...percolator.CellKey) ([]percolator.Cell, error) {
	return nil, nil
}

// A page newer than its document is exported later, and its run has not failed: a writer is about
// to change the document, possibly much later.
func TestMovedPageComesLater(t *testing.T) {
	x := New()
	doc := schema.Document{Hash: "earlier"}
	_, err := x.read(t.Context(), emptyPages{}, "http://h.example/a", doc.Encode())
	if !errors.Is(err, percolator.ErrUnavailable) || errors.Is(err, percolator.ErrConflict) {
		t.Errorf("%v, want what the framework does not count", err)
	}
	if n := x.Stats().Moved; n != 1 {
		t.Errorf("%d pages have moved, want 1", n)
	}
	r := percolator.NewRegistry()
	x.Register(r)
	// The pauses between runs grow to 0.5 s: a load on two cores takes minutes.
	if waits := r.Observers()[0].MaxConflicts; r.Err() != nil || waits < 4*60*2 {
		t.Errorf("after %d runs in a row it fails (%v)", waits, r.Err())
	}
}

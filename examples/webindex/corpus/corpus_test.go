package corpus

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/examples/webindex/page"
)

func same(t *testing.T, a, b map[string][]byte) {
	t.Helper()
	if !slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))) {
		t.Fatal("the trees hold different files")
	}
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			t.Fatalf("%s differs", name)
		}
	}
}

func tree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files, err := read(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The default corpus has the required sizes, and every link in the documentation resolves.
func TestGenerate(t *testing.T) {
	one := filepath.Join(t.TempDir(), "pages")
	if err := Generate(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	root, _, err := toolchain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := render(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, one), again)
	pages, skipped, err := page.Tree(one)
	if err != nil || skipped != 0 {
		t.Fatalf("%d skipped, %v", skipped, err)
	}
	hosts, stubs, links, duplicates := map[string]int{}, 0, 0, 0
	known, hashes := map[string]bool{}, map[string]bool{}
	for _, f := range pages {
		known[f.URL] = true
	}
	for _, f := range pages {
		raw, err := f.Read()
		if err != nil {
			t.Fatal(err)
		}
		p := page.Parse(f.URL, raw)
		host := strings.SplitN(f.URL, "/", 4)[2]
		hosts[host]++
		if p.Redirect != "" {
			stubs++
			continue
		}
		if p.Title == "" || p.Text == "" {
			t.Errorf("%s has no title or no text", f.URL)
		}
		links += len(p.Links)
		if hashes[p.Hash] {
			duplicates++
		}
		hashes[p.Hash] = true
		for _, l := range p.Links {
			inside := strings.HasPrefix(l.Target, "http://"+MainHost+"/")
			if host == MainHost && inside && !known[l.Target] {
				t.Errorf("%s: dead link %s", f.URL, l.Target)
			}
		}
	}
	t.Logf("%d pages on %v, %d stubs, %d duplicates, %d links", len(pages), hosts, stubs,
		duplicates, links)
	if len(pages) < 5000 || len(hosts) != 2 || stubs < 100 || duplicates < 100 || links < 20000 {
		t.Error("too small a corpus")
	}
	t.Run("again", func(t *testing.T) { generateAgain(t, one) })
}

// generateAgain: a complete tree is unchanged; an incomplete or foreign one is replaced.
func generateAgain(t *testing.T, dir string) {
	generate := func() {
		t.Helper()
		if err := Generate(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	stray := filepath.Join(dir, "stray")
	if err := os.WriteFile(stray, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	generate()
	if _, err := os.Stat(stray); err != nil {
		t.Error("a complete tree was written again")
	}
	if err := os.WriteFile(marker(dir), []byte("another toolchain"), 0o644); err != nil {
		t.Fatal(err)
	}
	generate()
	if _, err := os.Stat(stray); err == nil {
		t.Error("another toolchain's tree was kept")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Generate(ctx, filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("generated in spite of a cancelled context")
	}
}

func TestEdit(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	files := map[string][]byte{"h.example/not-a-page.txt": []byte("x")}
	for i := range 400 {
		name := "h.example/" + string(rune('a'+i%26)) + "/" + strings.Repeat("x", i/26+1) + ".html"
		files[name] = document("T", "<p>"+
			anchor("../a/x.html", "first")+anchor("../b/x.html", "second")+"</p>\n")
	}
	if err := write(t.Context(), src, "test", files); err != nil {
		t.Fatal(err)
	}
	edit := func(seed uint64) (map[string][]byte, Edits) {
		t.Helper()
		dst := filepath.Join(t.TempDir(), "dst")
		done, err := Edit(t.Context(), src, dst, 0.1, seed)
		if err != nil {
			t.Fatal(err)
		}
		return tree(t, dst), done
	}
	a, done := edit(1)
	again, _ := edit(1)
	same(t, a, again)
	same(t, files, tree(t, src))
	other, _ := edit(2)
	if maps.EqualFunc(a, other, bytes.Equal) {
		t.Error("another seed, the same edits")
	}
	if done.Changed == 0 || done.Added == 0 || done.Removed == 0 ||
		done.Changed+done.Added+done.Removed != 40 {
		t.Errorf("%+v", done)
	}
	differ := 0
	for name, content := range a {
		if !bytes.Equal(content, files[name]) {
			differ++
		}
	}
	if differ < 20 || differ > 40 {
		t.Errorf("%d files differ", differ)
	}
}

func TestEditRefuses(t *testing.T) {
	empty := t.TempDir()
	_, err := Edit(t.Context(), empty, filepath.Join(t.TempDir(), "d"), 0.1, 1)
	if !errors.Is(err, ErrNothingToEdit) {
		t.Errorf("empty tree: %v", err)
	}
	for _, share := range []float64{0, -1, 1.5} {
		if _, err := Edit(t.Context(), empty, filepath.Join(t.TempDir(), "d"), share,
			1); err == nil {
			t.Errorf("share %v was accepted", share)
		}
	}
	if _, err := Edit(t.Context(), empty, empty, 0.1, 1); err == nil {
		t.Error("edited in place")
	}
}

package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readingOrder matches the reading order in a package's doc.go: from its title to the next title or
// to the end of the comment.
var readingOrder = regexp.MustCompile(`(?s)// (?:# )?Reading order(.*?)(?:\n// # |\npackage )`)

// orderedFile matches a file's name in a reading order.
var orderedFile = regexp.MustCompile(`[a-z0-9_]+\.go`)

// TestReadingOrders: a reading order in a doc.go names each other file of its package once, tests
// excepted.
func TestReadingOrders(t *testing.T) {
	orders := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() != "doc.go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		order := readingOrder.FindSubmatch(text)
		if order == nil {
			return nil
		}
		orders++
		files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.go"))
		if err != nil {
			return err
		}
		var want []string
		for _, file := range files {
			name := filepath.Base(file)
			if name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
				want = append(want, name)
			}
		}
		got := orderedFile.FindAllString(string(order[1]), -1)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the reading order names %q, the package has %q", path, got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if orders < 4 {
		t.Errorf("found %d reading orders, want at least 4", orders)
	}
}

package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// program matches a program in README.md: a marker with the file's name, then a fenced block.
var program = regexp.MustCompile("(?s)<!-- (\\S+\\.go) -->\n```go\n(.*?)```")

// TestReadmeShowsRealPrograms: a program in README.md equals the named file, except for the package
// comment, so it compiles. `UPDATE=1 go test ./internal/archtest -run Readme` copies the files into
// README.md.
func TestReadmeShowsRealPrograms(t *testing.T) {
	name := filepath.Join("..", "..", "README.md")
	readme, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	shown := program.FindAllSubmatch(readme, -1)
	if len(shown) == 0 {
		t.Fatal("README.md shows no program")
	}
	for _, m := range shown {
		source, err := os.ReadFile(filepath.Join("..", "..", string(m[1])))
		if err != nil {
			t.Fatal(err)
		}
		comment, text, _ := strings.Cut(string(source), "package ")
		if !strings.HasPrefix(comment, "// ") {
			t.Errorf("%s has no comment", m[1])
		}
		text = "package " + text
		if string(m[2]) == text {
			continue
		}
		if os.Getenv("UPDATE") == "" {
			t.Errorf("%s in README.md differs from the file", m[1])
			continue
		}
		updated := strings.Replace(string(readme), string(m[0]), "<!-- "+string(m[1])+
			" -->\n```go\n"+text+"```", 1)
		if err := os.WriteFile(name, []byte(updated), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// quotedPath matches `path/like/this` in a document.
var quotedPath = regexp.MustCompile("`([A-Za-z0-9_.*/-]+)`")

// TestDocsNameRealFiles: a path in a document that begins with a directory of the repository
// exists.
func TestDocsNameRealFiles(t *testing.T) {
	base := filepath.Join("..", "..")
	documents, err := filepath.Glob(filepath.Join(base, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(base, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, document := range append(documents, more...) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range quotedPath.FindAllStringSubmatch(string(text), -1) {
			first, _, nested := strings.Cut(m[1], "/")
			if info, err := os.Stat(filepath.Join(base, first)); !nested || first == "" ||
				err != nil || !info.IsDir() {
				continue
			}
			checked++
			// A decision may be cited by its number alone.
			if found, err := filepath.Glob(filepath.Join(base, m[1]+"*")); err != nil ||
				len(found) == 0 {
				t.Errorf("%s names %s, which is not there", filepath.Base(document), m[1])
			}
		}
	}
	if checked == 0 {
		t.Error("no path was found: the test showed nothing")
	}
}

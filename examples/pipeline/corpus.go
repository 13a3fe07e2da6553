package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	percolator "github.com/percolator-go/percolator"
)

// standard are the packages that are imported by default.
var standard = []string{"bytes", "encoding", "fmt", "io", "net/http", "os", "sort", "strings", "time"}

// perLoad is the number of documents that one transaction writes.
const perLoad = 50

// file is a Go source file with the text of its doc comments.
type file struct{ path, text string }

// source returns the directory of the standard library's source.
func source(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find Go's source: go env GOROOT: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "src"), nil
}

// read returns the documented files below directories of root, without tests and internal packages.
func read(root string, dirs []string) (files []file, err error) {
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains([]string{"testdata", "internal", "vendor"}, d.Name()):
				return filepath.SkipDir
			case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text, err := docOf(path)
			if err != nil || text == "" {
				return err
			}
			name, err := filepath.Rel(root, path)
			files = append(files, file{filepath.ToSlash(name), text})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// docOf returns the doc comments of a file, separated by blank lines.
func docOf(path string) (string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	docs := []string{f.Doc.Text()} // empty without a comment
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			docs = append(docs, d.Doc.Text())
		case *ast.GenDecl:
			docs = append(docs, d.Doc.Text())
		}
	}
	docs = slices.DeleteFunc(docs, func(doc string) bool { return doc == "" })
	return strings.Join(docs, "\n"), nil
}

// load writes documents, and returns how many have changed.
func load(ctx context.Context, db *percolator.DB, files []file) (changed int, err error) {
	for part := range slices.Chunk(files, perLoad) {
		rows := make([]string, len(part))
		for i, f := range part {
			rows[i] = f.path
		}
		count := 0
		err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			count = 0
			existing, err := documents.GetMulti(ctx, tx, rows...)
			if err != nil {
				return err
			}
			old := map[string]string{}
			for _, d := range existing {
				old[d.Row] = d.Value
			}
			for _, f := range part {
				if old[f.path] != f.text {
					documents.Set(tx, f.path, f.text)
					count++
				}
			}
			return nil
		})
		if err != nil {
			return changed, err
		}
		changed += count
	}
	return changed, nil
}

// remove deletes the documents whose path begins with prefix.
func remove(ctx context.Context, db *percolator.DB, prefix string) error {
	_, err := db.DeleteRange(ctx, percolator.Rows(documents.Column.Table).Prefix(prefix))
	return err
}

// edit changes files as a release would: it drops every seventh, and in every third it changes the
// first paragraph and inserts another after it, which moves the others.
func edit(files []file) (kept []file, gone []string, err error) {
	for i, f := range files {
		first, rest, _ := strings.Cut(f.text, "\n\n")
		switch {
		case i%7 == 3:
			gone = append(gone, f.path)
			continue
		case i%3 == 1:
			f.text = "Changed: " + first + "\n\nA paragraph that several files have.\n\n" + rest
		}
		kept = append(kept, f)
	}
	if len(gone) == 0 {
		return nil, nil, errors.New("too few files to edit: give more packages")
	}
	return kept, gone, nil
}

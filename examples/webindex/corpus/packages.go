package corpus

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// pkg is one package of the standard library and the names of its pages.
type pkg struct {
	doc     *doc.Package
	fset    *token.FileSet
	imports map[string]string // name in the package's source -> import path
	file    map[string]string // "Symbol" or "Type.Method" -> file name of its page
	users   []string          // import paths of the packages that import it
}

// goroot returns the directory of the toolchain, from whose sources the corpus is made.
func goroot(ctx context.Context) (string, error) {
	if out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); dir != "" {
			return dir, nil
		}
	}
	if dir := runtime.GOROOT(); dir != "" { //nolint:staticcheck // the fallback where no go command is in PATH
		return dir, nil
	}
	return "", errors.New("corpus: no Go toolchain found: put the go command into PATH, or give a tree of pages by --pages")
}

// packages reads the exported packages below src, by import path, for one fixed platform.
func packages(ctx context.Context, src string) (map[string]*pkg, error) {
	platform := build.Default
	platform.GOOS, platform.GOARCH, platform.CgoEnabled, platform.UseAllFiles = "linux", "amd64",
		false, false
	found := map[string]*pkg{}
	err := filepath.WalkDir(src, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if skip(d.Name()) {
			return filepath.SkipDir
		}
		files, err := platform.ImportDir(dir, 0)
		if err != nil {
			return nil //nolint:nilerr // a directory without a package for this platform
		}
		rel, err := filepath.Rel(src, dir)
		if err != nil {
			return err
		}
		p, err := load(dir, filepath.ToSlash(rel), files.GoFiles)
		if err != nil {
			return err
		}
		found[p.doc.ImportPath] = p
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("corpus: read %s: %w", src, err)
	}
	for path, p := range found {
		for _, imported := range p.doc.Imports {
			if q := found[imported]; q != nil {
				q.users = append(q.users, path)
			}
		}
	}
	for _, p := range found {
		slices.Sort(p.users)
		p.nameImports(found)
	}
	return found, nil
}

// skip reports whether a directory contains no documented package.
func skip(name string) bool {
	switch name {
	case "cmd", "vendor", "internal", "testdata":
		return true
	}
	return strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".")
}

// load parses one package: the files with these names, none of them for tests or other platforms.
func load(dir, path string, names []string) (*pkg, error) {
	p := &pkg{fset: token.NewFileSet(), imports: map[string]string{}, file: map[string]string{}}
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(p.fset, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, spec := range f.Imports {
			if spec.Name != nil && spec.Name.Name != "_" && spec.Name.Name != "." {
				p.imports[spec.Name.Name] = strings.Trim(spec.Path.Value, `"`)
			}
		}
		files = append(files, f)
	}
	var mode doc.Mode
	if path == "builtin" {
		mode = doc.AllDecls // it documents names in lower case
	}
	d, err := doc.NewFromFiles(p.fset, files, path, mode)
	if err != nil {
		return nil, err
	}
	p.doc = d
	p.nameFiles()
	return p, nil
}

// nameImports adds the imports that have no name of their own, under their package's name.
func (p *pkg) nameImports(all map[string]*pkg) {
	for _, path := range p.doc.Imports {
		if q := all[path]; q != nil {
			if _, taken := p.imports[q.doc.Name]; !taken {
				p.imports[q.doc.Name] = path
			}
		}
	}
}

// nameFiles assigns a page to every function, type and method. Names that differ only in case get a
// number, for case-insensitive file systems.
func (p *pkg) nameFiles() {
	taken := map[string]bool{"index.html": true}
	for s := range p.symbols() {
		name := s.name
		for n := 2; taken[strings.ToLower(name)+".html"]; n++ {
			name = fmt.Sprintf("%s~%d", s.name, n)
		}
		taken[strings.ToLower(name)+".html"] = true
		p.file[s.name] = name + ".html"
	}
}

// symbol is an item with its own page.
type symbol struct {
	name string // "Func", "Type" or "Type.Method"
	kind string
	doc  string
	decl ast.Decl
	// the type itself, or the type a method or constructor belongs to; nil for other
	// functions
	typ *doc.Type
}

// symbols yields the package's symbols in the order of go doc.
func (p *pkg) symbols() func(yield func(symbol) bool) {
	return func(yield func(symbol) bool) {
		for _, f := range p.doc.Funcs {
			if !yield(symbol{f.Name, "func", f.Doc, f.Decl, nil}) {
				return
			}
		}
		for _, t := range p.doc.Types {
			if !yield(symbol{t.Name, "type", t.Doc, t.Decl, t}) {
				return
			}
			for _, f := range t.Funcs {
				if !yield(symbol{f.Name, "func", f.Doc, f.Decl, t}) {
					return
				}
			}
			for _, m := range t.Methods {
				if !yield(symbol{t.Name + "." + m.Name, "method", m.Doc, m.Decl, t}) {
					return
				}
			}
		}
	}
}

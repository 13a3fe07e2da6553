package corpus

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/scanner"
	"go/token"
	"html"
	"maps"
	"slices"
	"strings"
)

// renderer writes the documentation's pages. Links are relative, so that a mirrored page
// has the same bytes.
type renderer struct {
	all  map[string]*pkg
	emit func(rel string, content []byte) // rel is below the host's directory
}

// up returns the relative path from a page in dir, which is below the host, to the host's
// directory.
func up(dir string) string { return strings.Repeat("../", strings.Count(dir, "/")+1) }

// pkgDir returns the directory of a package's pages, relative to the host's.
func pkgDir(path string) string { return "pkg/" + path }

// anchor returns the HTML of a link.
func anchor(href, text string) string {
	return `<a href="` + html.EscapeString(href) + `">` + html.EscapeString(text) + `</a>`
}

// document returns a complete HTML page with the title and body.
func document(title, body string) []byte {
	return []byte("<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>" +
		html.EscapeString(title) +
		"</title></head>\n<body>\n" + body + "</body>\n</html>\n")
}

// href returns the relative link from a page in directory dir to a symbol's page, or to the
// package's page if sym is "", or "" if there is none.
func (r *renderer) href(dir, path, sym string) string {
	p := r.all[path]
	if p == nil {
		return ""
	}
	file := "index.html"
	if sym != "" {
		if file = p.file[sym]; file == "" {
			return ""
		}
	}
	if dir == pkgDir(path) {
		return file
	}
	return up(dir) + pkgDir(path) + "/" + file
}

// documentation writes all pages of all packages.
func (r *renderer) documentation() error {
	var list strings.Builder
	list.WriteString("<h1>Standard library</h1>\n<ul>\n")
	for _, path := range slices.Sorted(maps.Keys(r.all)) {
		p := r.all[path]
		fmt.Fprintf(&list, "<li>%s %s</li>\n", anchor(pkgDir(path)+"/index.html", path),
			html.EscapeString(p.doc.Synopsis(p.doc.Doc)))
		if err := r.pkg(p); err != nil {
			return err
		}
	}
	r.emit("index.html", document("Standard library", list.String()+"</ul>\n"))
	return nil
}

// pkg writes the package's own page, which links to its symbols and to the packages that
// import it, and the pages of its symbols.
func (r *renderer) pkg(p *pkg) error {
	path, dir := p.doc.ImportPath, pkgDir(p.doc.ImportPath)
	var b strings.Builder
	fmt.Fprintf(&b, "<nav>%s</nav>\n<h1>package %s</h1>\n",
		anchor(up(dir)+"index.html", "Standard library"), p.doc.Name)
	b.Write(r.comment(p, dir, p.doc.Doc))
	b.WriteString("<h2>Index</h2>\n<ul>\n")
	for s := range p.symbols() {
		fmt.Fprintf(&b, "<li>%s %s</li>\n", s.kind, anchor(p.file[s.name], s.name))
		content, err := r.symbol(p, s)
		if err != nil {
			return fmt.Errorf("corpus: render %s.%s: %w", path, s.name, err)
		}
		r.emit(dir+"/"+p.file[s.name], content)
	}
	b.WriteString("</ul>\n")
	if err := r.values(&b, p, dir, p.doc.Consts, p.doc.Vars); err != nil {
		return fmt.Errorf("corpus: render %s: %w", path, err)
	}
	if len(p.users) > 0 {
		b.WriteString("<h2>Imported by</h2>\n<ul>\n")
		for _, user := range p.users {
			fmt.Fprintf(&b, "<li>%s</li>\n", anchor(r.href(dir, user, ""), user))
		}
		b.WriteString("</ul>\n")
	}
	r.emit(dir+"/index.html", document("package "+path, b.String()))
	return nil
}

// symbol renders one function, type or method; a type links to its constructors and methods.
func (r *renderer) symbol(p *pkg, s symbol) ([]byte, error) {
	path, dir := p.doc.ImportPath, pkgDir(p.doc.ImportPath)
	var b strings.Builder
	fmt.Fprintf(&b, "<nav>%s / %s", anchor(up(dir)+"index.html", "Standard library"),
		anchor("index.html", "package "+path))
	if s.typ != nil && s.typ.Name != s.name {
		b.WriteString(" / " + anchor(p.file[s.typ.Name], "type "+s.typ.Name))
	}
	fmt.Fprintf(&b, "</nav>\n<h1>%s %s</h1>\n", s.kind, html.EscapeString(s.name))
	if err := r.declaration(&b, p, dir, s.decl); err != nil {
		return nil, err
	}
	b.Write(r.comment(p, dir, s.doc))
	if s.kind == "type" {
		b.WriteString("<ul>\n")
		for _, f := range s.typ.Funcs {
			fmt.Fprintf(&b, "<li>func %s</li>\n", anchor(p.file[f.Name], f.Name))
		}
		for _, m := range s.typ.Methods {
			fmt.Fprintf(&b, "<li>method %s</li>\n", anchor(p.file[s.name+"."+m.Name], m.Name))
		}
		b.WriteString("</ul>\n")
		if err := r.values(&b, p, dir, s.typ.Consts, s.typ.Vars); err != nil {
			return nil, err
		}
	}
	return document(path+"."+s.name, b.String()), nil
}

// values renders groups of constants and variables, which have no separate pages.
func (r *renderer) values(b *strings.Builder, p *pkg, dir string, groups ...[]*doc.Value) error {
	for _, group := range groups {
		for _, v := range group {
			if err := r.declaration(b, p, dir, v.Decl); err != nil {
				return err
			}
			b.Write(r.comment(p, dir, v.Doc))
		}
	}
	return nil
}

// comment renders a doc comment; its links lead to our own pages where there is one.
func (r *renderer) comment(p *pkg, dir, text string) []byte {
	printer := p.doc.Printer()
	printer.DocLinkURL = func(l *comment.DocLink) string {
		path, name := l.ImportPath, l.Name
		if path == "" {
			path = p.doc.ImportPath
		}
		if l.Recv != "" {
			name = strings.TrimPrefix(l.Recv, "*") + "." + name
		}
		return r.href(dir, path, name)
	}
	return printer.HTML(p.doc.Parser().Parse(text))
}

// declaration renders source text; names of symbols that have a page are links to it.
func (r *renderer) declaration(b *strings.Builder, p *pkg, dir string, decl ast.Decl) error {
	var source bytes.Buffer
	if err := format.Node(&source, p.fset, decl); err != nil {
		return err
	}
	text := source.Bytes()
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var scan scanner.Scanner
	scan.Init(file, text, func(token.Position, string) {}, scanner.ScanComments)
	b.WriteString("<pre>")
	// A name after a dot belongs to the name before it: to a package that is imported, or
	// to something without a page.
	done, qualifier, dot := 0, "", false
	for {
		pos, tok, lit := scan.Scan()
		if tok == token.EOF {
			break
		}
		if tok != token.IDENT {
			if dot = tok == token.PERIOD; !dot {
				qualifier = ""
			}
			continue
		}
		href := ""
		switch {
		case !dot:
			href = r.name(p, dir, lit)
		case qualifier != "":
			href = r.href(dir, p.imports[qualifier], lit)
		}
		at := file.Offset(pos)
		if href != "" {
			b.WriteString(html.EscapeString(string(text[done:at])) + anchor(href, lit))
			done = at + len(lit)
		}
		qualifier, dot = lit, false
	}
	b.WriteString(html.EscapeString(string(text[done:])) + "</pre>\n")
	return nil
}

// name returns the page of an unqualified name, which is the package's own or predeclared.
func (r *renderer) name(p *pkg, dir, name string) string {
	if ast.IsExported(name) {
		return r.href(dir, p.doc.ImportPath, name)
	}
	return r.href(dir, "builtin", name)
}

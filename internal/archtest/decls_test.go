package archtest

import (
	"go/ast"
	"go/token"
	"strconv"
)

// function checks one function: its length, its comment, and that it is not init.
func (w *walker) function(path string, fset *token.FileSet, d *ast.FuncDecl) {
	name := d.Name.Name
	visible := ast.IsExported(name)
	if d.Recv != nil {
		receiver := receiverName(d.Recv.List[0].Type)
		visible = visible && ast.IsExported(receiver)
		name = receiver + "." + name
	}
	length := fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1
	if length > maxFuncLines {
		w.add("func", path, "%s: %d lines", name, length)
	}
	if d.Recv == nil && name == "init" {
		w.add("init", path, "init")
	}
	if visible && d.Doc == nil {
		w.add("doc", path, "%s", name)
	}
}

func receiverName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// declaration checks that exported types, constants and variables are commented, individually or as
// a group.
func (w *walker) declaration(path, pkg string, d *ast.GenDecl) {
	if d.Tok == token.IMPORT || pkg == "main" {
		return
	}
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
				w.add("doc", path, "%s", s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					w.add("doc", path, "%s", name.Name)
				}
			}
		}
	}
}

// sleeps finds calls of time.Sleep in a test, whatever the import name.
func (w *walker) sleeps(path string, fset *token.FileSet, file *ast.File) {
	local := ""
	for _, spec := range file.Imports {
		if imported, err := strconv.Unquote(spec.Path.Value); err != nil || imported != "time" {
			continue
		}
		local = "time"
		if spec.Name != nil {
			local = spec.Name.Name
		}
	}
	if local == "" {
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Sleep" {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && id.Name == local {
			w.add("sleep", path, "line %d", fset.Position(sel.Pos()).Line)
		}
		return true
	})
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPatchesApply: every patch applies to the present tree, together with all others, and has a
// line in the table.
func TestPatchesApply(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if err := complete(root); err != nil {
		t.Error(err)
	}
	if _, err := overlay(root, t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestPatchThatNoLongerApplies expects an error that names the patch.
func TestPatchThatNoLongerApplies(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	files := map[string]string{
		"a.go":                        "package a\n\nfunc f() int { return 2 }\n",
		patches + "/gone.patch":       "--- a/a.go\n+++ b/a.go\n@@ -1,3 +1,3 @@\n package a\n \n-func f() int { return 1 }\n+func f() int { return 3 }\n",
		patches + "/that_holds.patch": "--- a/a.go\n+++ b/a.go\n@@ -1,3 +1,3 @@\n package a\n \n-func f() int { return 2 }\n+func f() int { return 3 }\n",
	}
	for name, text := range files {
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := overlay(root, dir)
	if err == nil || !strings.Contains(err.Error(), "gone.patch") ||
		strings.Contains(err.Error(), "that_holds") {
		t.Errorf("%v; want an error that names gone.patch alone", err)
	}
}

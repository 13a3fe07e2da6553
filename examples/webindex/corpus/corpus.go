package corpus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// generation is part of the marker file: raise it when the same sources generate different pages.
const generation = "2"

// DefaultDir returns the default directory of Generate, which is below the user's cache directory.
func DefaultDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("corpus: %w", err)
	}
	return filepath.Join(cache, "percolator-webindex", "pages"), nil
}

// Generate ensures that dir contains the default corpus of the installed toolchain, and writes it
// if necessary. It owns dir and a marker file next to it: it replaces the tree of another
// toolchain.
func Generate(ctx context.Context, dir string) error {
	root, label, err := toolchain(ctx)
	if err != nil || complete(dir, label) {
		return err
	}
	files, err := render(ctx, root)
	if err != nil {
		return err
	}
	return write(ctx, dir, label, files)
}

// Sample writes a part of the default corpus to dir: one in n of the documentation's pages, with
// those of the same path on both hosts together. It owns dir and a marker next to it.
func Sample(ctx context.Context, dir string, n int) error {
	root, label, err := toolchain(ctx)
	if err != nil {
		return err
	}
	files, err := render(ctx, root)
	if err != nil {
		return err
	}
	for rel := range files {
		_, path, _ := strings.Cut(rel, "/")
		if strings.HasPrefix(path, "pkg/") && pick(path, max(n, 1)) != 0 {
			delete(files, rel)
		}
	}
	return write(ctx, dir, fmt.Sprintf("one in %d of %s", n, label), files)
}

// toolchain returns the root directory of the Go toolchain, and a label that identifies the corpus
// made from it.
func toolchain(ctx context.Context) (root, label string, err error) {
	if root, err = goroot(ctx); err != nil {
		return "", "", err
	}
	version, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a toolchain built from a checkout lacks it
		return "", "", fmt.Errorf("corpus: %w", err)
	}
	return root, generation + " " + root + " " + string(version), nil
}

// render renders the default corpus of the toolchain. The keys are paths below the tree's root.
func render(ctx context.Context, root string) (map[string][]byte, error) {
	all, err := packages(ctx, filepath.Join(root, "src"))
	if err != nil {
		return nil, err
	}
	s, err := newSite(all)
	if err != nil {
		return nil, err
	}
	return s.files, nil
}

// marker returns the path of the marker file, which is next to dir and describes its complete
// contents.
func marker(dir string) string { return filepath.Clean(dir) + ".complete" }

// complete reports whether dir contains the complete corpus that the label identifies.
func complete(dir, label string) bool {
	have, err := os.ReadFile(marker(dir))
	if err != nil || string(have) != label {
		return false
	}
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// write creates a new tree with the files, whose keys are slash-separated paths below dir, and
// renames it to dir: a tree is complete or absent.
func write(ctx context.Context, dir, label string, files map[string][]byte) error {
	part := filepath.Clean(dir) + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	made := map[string]bool{}
	for rel, content := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		file := filepath.Join(part, filepath.FromSlash(rel))
		if parent := filepath.Dir(file); !made[parent] {
			if err := os.MkdirAll(parent, 0o755); err != nil {
				return fmt.Errorf("corpus: %w", err)
			}
			made[parent] = true
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return fmt.Errorf("corpus: %w", err)
		}
	}
	if err := os.Remove(marker(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("corpus: %w", err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(part, dir)); err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	if err := os.WriteFile(marker(dir), []byte(label), 0o644); err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	return nil
}

// read returns all regular files below dir by slash-separated path.
func read(ctx context.Context, dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(rel)] = content
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("corpus: read %s: %w", dir, err)
	}
	return files, nil
}

// isPage reports whether the path names an HTML file below a host's directory.
func isPage(rel string) bool {
	_, rest, found := strings.Cut(rel, "/")
	return found && (strings.HasSuffix(rest, ".html") || strings.HasSuffix(rest, ".htm"))
}

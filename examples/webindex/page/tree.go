package page

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// ErrNoPages reports a tree without a page, which is taken for a mistake.
var ErrNoPages = errors.New("page: no .html file below a host's directory")

// File is one page of a tree.
type File struct {
	URL  string // in normal form
	Path string // of the file
	Size int64  // bytes
}

// Read reads the page.
func (f File) Read() ([]byte, error) {
	raw, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	return raw, nil
}

// Tree lists the pages below dir, whose first level of directories are the hosts, by URL. Files
// that are not pages (see FileURL) and those over MaxSize are omitted and counted. Of several
// files with the same URL it lists the one with the least path.
func Tree(dir string) (pages []File, skipped int, err error) {
	found := map[string]File{}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		u, ok := FileURL(filepath.ToSlash(rel))
		_, taken := found[u]
		if !ok || taken || info.Size() > MaxSize {
			skipped++
			return nil
		}
		found[u] = File{URL: u, Path: file, Size: info.Size()}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("page: list %s: %w", dir, err)
	}
	if len(found) == 0 {
		return nil, skipped, fmt.Errorf("%w: %s", ErrNoPages, dir)
	}
	for _, u := range slices.Sorted(maps.Keys(found)) {
		pages = append(pages, found[u])
	}
	return pages, skipped, nil
}

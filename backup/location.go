package backup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"

	"github.com/percolator-go/percolator/internal/coded"
)

// Location of backups: a bucket of an object store, or a directory used as one. The bucket is
// safe for concurrent use.

// Location holds backups. It must be closed.
type Location struct {
	bucket *blob.Bucket
	dir    string // directory whose files are synced; empty for a bucket
}

// Open opens the location with the name: a directory, or the URL of a bucket, such as
// s3://name?region=eu-central-1. Errors: ErrNotFound if the directory does not exist,
// ErrNoDriver if the program links no driver for the URL's scheme (for s3: package backup/s3).
func Open(ctx context.Context, name string) (*Location, error) {
	return openLocation(ctx, name, false)
}

// OpenNew is like Open but creates the directory if necessary.
func OpenNew(ctx context.Context, name string) (*Location, error) {
	return openLocation(ctx, name, true)
}

func openLocation(ctx context.Context, name string, create bool) (*Location, error) {
	if name == "" {
		return nil, errors.New("backup: no location is named")
	}
	if scheme, _, ok := strings.Cut(name, "://"); ok {
		if !blob.DefaultURLMux().ValidBucketScheme(scheme) {
			return nil, noDriver(scheme)
		}
		bucket, err := blob.OpenBucket(ctx, name)
		if err != nil {
			return nil, coded.Errorf("", "backup: open %s: %w", name, err)
		}
		return NewLocation(bucket), nil
	}
	dir, err := filepath.Abs(name)
	if err != nil {
		return nil, coded.Errorf("", "backup: find the directory %s: %w", name, err)
	}
	var parents []string // directories that get a new entry
	for p := dir; p != filepath.Dir(p); p = filepath.Dir(p) {
		if _, err := os.Stat(p); !errors.Is(err, os.ErrNotExist) {
			break
		}
		parents = append(parents, filepath.Dir(p))
	}
	if len(parents) > 0 && !create {
		return nil, coded.Errorf("", "%w: there is no directory %s", ErrNotFound, name)
	}
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{
		CreateDir: create, NoTempDir: true, Metadata: fileblob.MetadataDontWrite, DirFileMode: 0o700,
	})
	if err != nil {
		return nil, coded.Errorf("", "backup: open %s: %w", name, err)
	}
	if err := syncAll(parents...); err != nil {
		return nil, errors.Join(err, bucket.Close())
	}
	return &Location{bucket: bucket, dir: dir}, nil
}

// noDriver returns the error for a scheme without a driver.
func noDriver(scheme string) error {
	const s3 = "github.com/percolator-go/percolator/backup/s3"
	if scheme == "s3" {
		return coded.Errorf("", "%w for s3:// in this program: import _ %q in its main package", ErrNoDriver, s3)
	}
	return coded.Errorf("", "%w for %s:// in this program: name a directory or an s3:// bucket", ErrNoDriver, scheme)
}

// NewLocation returns the location of the bucket, which it owns.
func NewLocation(bucket *blob.Bucket) *Location { return &Location{bucket: bucket} }

// Close closes the bucket.
func (l *Location) Close() error { return l.bucket.Close() }

// write writes an object with fn. The object exists and is durable when write returns nil; if fn
// fails, nothing is written.
func (l *Location) write(ctx context.Context, name string, ifAbsent bool,
	fn func(io.Writer) error) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := l.bucket.NewWriter(within, name, &blob.WriterOptions{
		ContentType: "application/octet-stream", IfNotExist: ifAbsent,
	})
	if err != nil {
		return coded.Errorf("", "backup: write %s: %w", name, err)
	}
	if err := fn(w); err != nil {
		cancel() // abandon the object
		_ = w.Close()
		return err
	}
	if err := w.Close(); err != nil {
		return coded.Errorf("", "backup: write %s: %w", name, err)
	}
	return l.sync(name)
}

// sync makes a file and its directory entry durable.
func (l *Location) sync(name string) error {
	if l.dir == "" {
		return nil
	}
	path := filepath.Join(l.dir, filepath.FromSlash(name))
	return syncAll(path, filepath.Dir(path), l.dir)
}

// syncAll makes files and directories durable.
func syncAll(paths ...string) error {
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return coded.Errorf("", "backup: open what must be synced: %w", err)
		}
		err = f.Sync()
		if closing := f.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return coded.Errorf("", "backup: sync %s: %w", p, err)
		}
	}
	return nil
}

// read returns a small object; ok is false if it does not exist.
func (l *Location) read(ctx context.Context, name string) (data []byte, ok bool, err error) {
	data, err = l.bucket.ReadAll(ctx, name)
	switch {
	case gcerrors.Code(err) == gcerrors.NotFound:
		return nil, false, nil
	case err != nil:
		return nil, false, coded.Errorf("", "backup: read %s: %w", name, err)
	}
	return data, true, nil
}

// folder matches the names of backups' folders. A location may hold others, which this package
// neither reads nor removes.
var folder = regexp.MustCompile(`^\d{8}T\d{6}\.\d{3}Z-(full|incremental)$`)

// names returns the folders of backups, whole and unfinished, the oldest first.
func (l *Location) names(ctx context.Context) ([]string, error) {
	all, err := l.list(ctx, "", "/")
	return slices.DeleteFunc(all, func(name string) bool { return !folder.MatchString(name) }), err
}

// objects returns the names of the objects in the folder of a backup.
func (l *Location) objects(ctx context.Context, backup string) ([]string, error) {
	return l.list(ctx, backup+"/", "")
}

func (l *Location) list(ctx context.Context, prefix, delimiter string) ([]string, error) {
	var out []string
	for it := l.bucket.List(&blob.ListOptions{Prefix: prefix, Delimiter: delimiter}); ; {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			slices.Sort(out)
			return out, nil
		}
		if err != nil {
			return nil, coded.Errorf("", "backup: list %s: %w", prefix, err)
		}
		if delimiter == "" || o.IsDir {
			out = append(out, strings.TrimSuffix(o.Key, "/"))
		}
	}
}

// remove removes objects that are no longer needed.
func (l *Location) remove(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := ctx.Err(); err != nil { // the driver for directories ignores ctx
			return err
		}
		err := l.bucket.Delete(ctx, name)
		if err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return coded.Errorf("", "backup: remove %s: %w", name, err)
		}
	}
	return nil
}

// random returns eight hexadecimal digits that distinguish two writers of one range.
func random() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // rand.Read never fails
	return hex.EncodeToString(b[:])
}

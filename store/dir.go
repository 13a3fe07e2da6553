package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/store/raftlog"
)

// Directory of a store: locking, identification, creation. VERSION identifies a store's
// directory and its disk format. Open writes it as the last step of creating a store. Until then
// VERSION.new marks a store whose creation did not finish: nothing in it was ever acknowledged, and
// the next Open creates it again.
const (
	versionFile    = "VERSION"
	newVersionFile = "VERSION.new"
	lockFile       = "LOCK"
	manifestFile   = "MANIFEST" // Badger's
	versionMagic   = "percolator store"

	dirMode  = 0o700
	fileMode = 0o600
)

// directory is the result of prepareDir.
type directory struct {
	locks   []*os.File // hold flocks, released when the files are closed or the process dies
	log     [16]byte   // id of the log that belongs to the store
	version version.Number
	fresh   bool // the directory was empty, or an Open did not finish
}

// prepareDir locks the directories of the store and its log, unless one contains foreign files, and
// checks the store's contents or starts to create them. Open calls it before anything else.
func prepareDir(o Options) (d directory, err error) {
	if o.Dir == "" {
		return d, errors.New("store: Options.Dir is empty")
	}
	if o.LogDir != "" && filepath.Clean(o.LogDir) == filepath.Clean(o.Dir) {
		return d, fmt.Errorf("store: Dir and LogDir are both %s: use a different LogDir, or none", o.Dir)
	}
	defer func() {
		for _, lock := range d.locks {
			if err != nil {
				err = errors.Join(err, lock.Close())
			}
		}
	}()
	// Check before creating a LOCK file in a directory that is not a store's.
	if err := checkOurs(o.Dir); err != nil {
		return d, err
	}
	if err := d.lock(o.Dir); err != nil {
		return d, err
	}
	if err := d.checkContents(o); err != nil {
		return d, err
	}
	if err := checkLogDir(o.logDir()); err != nil {
		return d, err
	}
	return d, d.lock(o.logDir())
}

// lock locks a directory, and creates it if it does not exist.
func (d *directory) lock(dir string) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("store: create directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	d.locks = append(d.locks, lock)
	return nil
}

// lockDir acquires an exclusive flock, which also excludes a second Store of this process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("store: open the lock file: %w", err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("%w: %s", ErrInUse, dir), f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("store: lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// checkOurs returns ErrForeign if the directory contains files other than LOCK and lost+found but
// neither VERSION nor VERSION.new.
func checkOurs(dir string) error {
	entries, err := listDir(dir)
	if err != nil {
		return err
	}
	foreign := ""
	for _, e := range entries {
		switch e.Name() {
		case versionFile, newVersionFile:
			return nil
		case lockFile, "lost+found": // left by a crash before VERSION.new; in a file system's root
		default:
			foreign = e.Name()
		}
	}
	if foreign != "" {
		return fmt.Errorf("%w: %s contains %q but no %s", ErrForeign, dir, foreign, versionFile)
	}
	return nil
}

// checkLogDir returns ErrForeignLog if the directory contains files other than a log's, LOCK and
// lost+found. Opening the log checks which store it belongs to.
func checkLogDir(dir string) error {
	entries, err := listDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != lockFile && name != "lost+found" && !raftlog.IsFile(name) {
			return fmt.Errorf("%w: %s contains %q", ErrForeignLog, dir, name)
		}
	}
	return nil
}

// checkContents checks an existing store, or starts to create one. The directory is locked.
func (d *directory) checkContents(o Options) error {
	have, err := os.ReadFile(filepath.Join(o.Dir, versionFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The oldest: the other nodes may not support a later one.
		d.version, d.fresh = o.Versions.Oldest, true
		d.log, err = beginDir(o)
		return err
	case err != nil:
		return fmt.Errorf("store: read VERSION: %w", err)
	}
	d.version, d.log, err = checkVersion(o, string(have))
	if err := errors.Join(err, readDamage(o.Dir)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.Dir, stateDirName, manifestFile)); err != nil {
		return fmt.Errorf("%w: find Badger's manifest: %w", ErrDamaged, err)
	}
	return nil
}

// beginDir prepares an empty directory, or the remains of an unfinished Open, for a new store.
// It makes the log's id durable before the log is created, so that the next Open recognizes
// the log of an unfinished one.
func beginDir(o Options) (log [16]byte, err error) {
	if err := os.RemoveAll(filepath.Join(o.Dir, stateDirName)); err != nil {
		return log, fmt.Errorf("store: remove an unfinished database: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(o.Dir, newVersionFile), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return log, fmt.Errorf("store: write VERSION: %w", err)
	}
	unfinished, err := io.ReadAll(f)
	if err == nil {
		// A file that was not written whole means that no log exists yet.
		if _, log, err = checkVersion(o, string(unfinished)); err != nil {
			log = uuid.New()
			err = f.Truncate(0)
			if err == nil {
				_, err = f.WriteAt([]byte(versionText(o.Versions.Oldest, log)), 0)
			}
		}
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return log, fmt.Errorf("store: write VERSION: %w", err)
	}
	return log, syncDir(o.Dir)
}

// finishDir writes VERSION once the database and log of a new store are open. It changes nothing
// in an existing store.
func finishDir(o Options) error {
	if err := syncDir(filepath.Dir(filepath.Clean(o.logDir()))); err != nil {
		return err
	}
	err := os.Rename(filepath.Join(o.Dir, newVersionFile), filepath.Join(o.Dir, versionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: write VERSION: %w", err)
	}
	if err := syncDir(o.Dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(filepath.Clean(o.Dir)))
}

// listDir returns the entries of a directory, or none if it does not exist.
func listDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store: read directory: %w", err)
	}
	return entries, nil
}

// replaceFile durably replaces a file of the directory, or creates it.
func replaceFile(dir, name, content string) error {
	return replaceFileBy(dir, name, name+".new", content)
}

// replaceFileBy is replaceFile with the name of the temporary file, which a crash may leave
// behind.
func replaceFileBy(dir, name, by, content string) error {
	path, next := filepath.Join(dir, name), filepath.Join(dir, by)
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("store: write %s: %w", name, err)
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("store: write %s: %w", name, err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("store: sync directory: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("store: sync directory: %w", err)
	}
	return nil
}

const (
	formatLine = "format "
	logLine    = "log "
	nameLine   = "release "
)

// versionText returns the lines of a VERSION file: the magic, the version, the id of the log
// and, from version.Named on, the release that wrote the file.
func versionText(v version.Number, log [16]byte) string {
	text := fmt.Sprintf("%s\n%s%d\n%s%x\n", versionMagic, formatLine, v, logLine, log)
	if v >= version.Named.Since {
		text += nameLine + version.Release + "\n"
	}
	return text
}

// checkVersion parses the lines that versionText returns.
func checkVersion(o Options, have string) (v version.Number, log [16]byte, err error) {
	lines := strings.Split(strings.TrimSuffix(have, "\n"), "\n")
	if lines[0] != versionMagic && !strings.HasPrefix(versionMagic, lines[0]) {
		return 0, log, fmt.Errorf("%w: %s contains the %s of another program", ErrForeign, o.Dir, versionFile)
	}
	if len(lines) > 2 {
		text, _ := strings.CutPrefix(lines[1], formatLine)
		n, err := strconv.ParseUint(text, 10, 32)
		v = version.Number(n)
		if err != nil || v < o.Versions.Oldest || v > o.Versions.Newest {
			return 0, log, &VersionError{Dir: o.Dir, Have: text, Release: releaseOf(lines), Knows: o.Versions}
		}
	}
	want := 3
	if v >= version.Named.Since {
		want = 4
	}
	if len(lines) != want || lines[0] != versionMagic {
		return 0, log, fmt.Errorf("%w: %s in %s is truncated", ErrDamaged, versionFile, o.Dir)
	}
	id, ok := strings.CutPrefix(lines[2], logLine)
	b, err := hex.DecodeString(id)
	if !ok || err != nil || len(b) != len(log) {
		return 0, log, fmt.Errorf("%w: %s in %s contains no log id", ErrDamaged, versionFile, o.Dir)
	}
	return v, [16]byte(b), nil
}

// releaseOf returns the release in the lines of a VERSION file, or "" if they have none.
func releaseOf(lines []string) string {
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, nameLine); ok {
			return name
		}
	}
	return ""
}

// removeLeftovers deletes empty log files, which Badger refuses ("Create a new file", its issue
// 2207): a process killed between creating and writing such a file leaves it behind.
func removeLeftovers(dir string) error {
	entries, err := listDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != memTableExt && ext != ".vlog" {
			continue
		}
		info, err := e.Info()
		if err == nil && info.Size() == 0 {
			err = os.Remove(filepath.Join(dir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: remove an empty log file: %w", err)
		}
	}
	return nil
}

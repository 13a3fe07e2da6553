package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A store's directory: VERSION says that it is ours and how to read it; it is written last. Until then VERSION.new
// stands for it, and what is found beside it was never acknowledged to anybody and is made anew.
const (
	versionFile    = "VERSION"
	newVersionFile = "VERSION.new"
	lockFile       = "LOCK"
	manifestFile   = "MANIFEST" // Badger's
	versionMagic   = "percolator store"

	dirMode  = 0o700
	fileMode = 0o600
)

// prepareDir takes the directory's lock and checks, or begins, its contents. The lock is the returned file's and ends
// with it, also when the process dies.
func prepareDir(o Options) (lock *os.File, err error) {
	if o.Dir == "" {
		return nil, errors.New("store: no directory given")
	}
	if err := os.MkdirAll(o.Dir, dirMode); err != nil {
		return nil, fmt.Errorf("store: make directory: %w", err)
	}
	if err := checkOurs(o.Dir); err != nil { // before a LOCK file is left in somebody else's directory
		return nil, err
	}
	if lock, err = lockDir(o.Dir); err != nil {
		return nil, err
	}
	if err := checkContents(o); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// lockDir takes an exclusive flock, which also keeps out a second Store of this process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("store: lock: %w", err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("%w: %s", ErrInUse, dir), f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("store: lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// checkOurs returns ErrForeign if there are files but neither VERSION nor VERSION.new.
func checkOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("store: read directory: %w", err)
	}
	foreign := ""
	for _, e := range entries {
		switch e.Name() {
		case versionFile, newVersionFile:
			return nil
		case lockFile, "lost+found": // left by a crash before VERSION.new; the root of a file system
		default:
			foreign = e.Name()
		}
	}
	if foreign != "" {
		return fmt.Errorf("%w: %s has %q but no %s", ErrForeign, dir, foreign, versionFile)
	}
	return nil
}

// checkContents checks an existing store, or begins a new one, under the lock.
func checkContents(o Options) error {
	have, err := os.ReadFile(filepath.Join(o.Dir, versionFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return beginDir(o)
	case err != nil:
		return fmt.Errorf("store: read version: %w", err)
	}
	if err := errors.Join(checkVersion(o, string(have)), readDamage(o.Dir)); err != nil {
		return err
	}
	for _, name := range databaseDirs(o) {
		if _, err := os.Stat(filepath.Join(o.Dir, name, manifestFile)); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return nil
}

// beginDir makes an empty store, or what is left of an unfinished Open, ready to be filled.
func beginDir(o Options) error {
	for _, name := range []string{sharedDir, stateDir, logDir} {
		if err := os.RemoveAll(filepath.Join(o.Dir, name)); err != nil {
			return fmt.Errorf("store: remove an unfinished database: %w", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(o.Dir, newVersionFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("store: write version: %w", err)
	}
	_, err = f.WriteString(versionText(o))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("store: write version: %w", err)
	}
	return syncDir(o.Dir)
}

// finishDir makes a new store permanent, once its databases have been opened. For an old one it does nothing.
func finishDir(o Options) error {
	err := os.Rename(filepath.Join(o.Dir, newVersionFile), filepath.Join(o.Dir, versionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: write version: %w", err)
	}
	if err := syncDir(o.Dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(filepath.Clean(o.Dir)))
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

func databaseDirs(o Options) []string {
	if o.SeparateLog {
		return []string{stateDir, logDir}
	}
	return []string{sharedDir}
}

func layout(o Options) string {
	if o.SeparateLog {
		return "separate log"
	}
	return "shared log"
}

func versionText(o Options) string {
	return fmt.Sprintf("%s\nformat %d\n%s\n", versionMagic, DiskFormat, layout(o))
}

// checkVersion compares the VERSION file's three lines with what o wants.
func checkVersion(o Options, have string) error {
	lines := strings.Split(strings.TrimSuffix(have, "\n"), "\n")
	if len(lines) != 3 || lines[0] != versionMagic {
		if len(lines) > 0 && strings.HasPrefix(versionMagic, lines[0]) {
			return fmt.Errorf("%w: %s in %s is cut short", ErrDamaged, versionFile, o.Dir)
		}
		return fmt.Errorf("%w: %s has another program's %s", ErrForeign, o.Dir, versionFile)
	}
	if want := "format " + strconv.Itoa(DiskFormat); lines[1] != want {
		return &VersionError{Dir: o.Dir, Have: lines[1], Want: want}
	}
	if want := layout(o); lines[2] != want {
		return &VersionError{Dir: o.Dir, Have: lines[2], Want: want}
	}
	return nil
}

// removeLeftovers deletes log files of no bytes: a killed process made them and never wrote to them.
func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: read directory: %w", err)
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".mem" && ext != ".vlog" {
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

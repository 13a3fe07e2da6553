package backup

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/internal/coded"
)

// Verification of backups without a cluster: every byte of them. Workers share the tally and the
// list of faults, each behind a lock.

// VerifyOptions select the backups to verify.
type VerifyOptions struct {
	Options
	Name string // verify this backup and its ancestors. Defaults to all backups of the location
}

// Verified is the result of Verify.
type Verified struct {
	Backups    []*Manifest // verified backups, the oldest first
	Unfinished []string    // folders without a manifest: interrupted or running backups
	Faults     []error     // each wraps ErrDamaged or ErrNotFound
}

// Verify reads complete backups and compares every byte with its checksum. Faults are in the result;
// the error reports that verification was impossible, ErrNotFound if there is no complete backup.
func Verify(ctx context.Context, l *Location, o VerifyOptions) (*Verified, error) {
	v := &verifyRun{work: newWork(nil, l, o.Options)}
	listed, err := l.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range listed {
		switch {
		case o.Name != "" && o.Name != b.Name:
		case b.Err != nil:
			v.fault(b.Err)
		case b.Manifest == nil:
			v.found.Unfinished = append(v.found.Unfinished, b.Name)
		default:
			if err := v.chain(ctx, b.Manifest); err != nil {
				return nil, err
			}
		}
	}
	if o.Name != "" && len(v.found.Backups)+len(v.found.Faults) == 0 {
		return nil, coded.Errorf("", "%w: %s is incomplete or does not exist", ErrNotFound, o.Name)
	}
	if len(v.found.Backups)+len(v.found.Faults) == 0 {
		// A result without faults would be mistaken for success.
		err := coded.Errorf("", "%w: there is no complete backup", ErrNotFound)
		if n := len(v.found.Unfinished); n > 0 {
			err = coded.Errorf("", "%w; %d are unfinished", err, n)
		}
		return nil, err
	}
	return &v.found, v.files(ctx)
}

// verifyRun is a Verify in progress.
type verifyRun struct {
	*work
	faults sync.Mutex
	found  Verified
}

func (v *verifyRun) fault(err error) {
	v.faults.Lock()
	defer v.faults.Unlock()
	v.found.Faults = append(v.found.Faults, err)
}

// chain adds the backup and its ancestors to those to be verified. It returns the error of reading
// an ancestor's manifest, unless that is missing or damaged, which is a fault.
func (v *verifyRun) chain(ctx context.Context, m *Manifest) error {
	needed, err := v.from.chain(ctx, m)
	switch {
	case errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound):
		v.fault(err)
		needed = []*Manifest{m}
	case err != nil:
		return err
	}
	for _, m := range needed {
		if !slices.ContainsFunc(v.found.Backups, func(o *Manifest) bool { return o.Name == m.Name }) {
			v.found.Backups = append(v.found.Backups, m)
		}
	}
	return nil
}

// files verifies all data files.
func (v *verifyRun) files(ctx context.Context) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(v.Workers)
	for _, m := range v.found.Backups {
		if err := m.covers(); err != nil {
			v.fault(err)
		}
		v.plans(len(m.Files) + len(m.Pending))
	}
	for _, m := range v.found.Backups {
		for _, f := range slices.Concat(m.Files, m.Pending) {
			group.Go(func() error {
				err := v.file(within, m, &f)
				if errors.Is(err, ErrDamaged) {
					v.fault(err)
					err = nil
				}
				return err
			})
		}
	}
	return group.Wait()
}

// file verifies one data file.
func (v *verifyRun) file(ctx context.Context, m *Manifest, f *File) error {
	d, err := v.from.openData(ctx, m, f)
	if err != nil {
		return err
	}
	defer d.close()
	var records, bytes int64
	for {
		c, err := d.next()
		if errors.Is(err, io.EOF) {
			v.count(1, records, bytes)
			return nil
		}
		if err != nil {
			return err
		}
		records, bytes = records+1, bytes+recordBytes(c)
		if bytes > 1<<20 {
			if err := v.throttle(ctx, bytes); err != nil {
				return err
			}
			v.count(0, records, bytes)
			records, bytes = 0, 0
		}
	}
}

// covers returns an error unless the files of each table cover it without a gap.
func (m *Manifest) covers() error {
	for _, t := range m.Tables {
		next, ended := []byte(nil), false
		for i := range m.Files {
			f := &m.Files[i]
			if f.Table != t.ID {
				continue
			}
			if ended || string(f.Start) != string(next) {
				return coded.Errorf("", "%w: the files of table %q of %s leave a gap before row %q", ErrDamaged,
					t.Name, m.Name, f.Start)
			}
			next, ended = f.End, !f.HasEnd
		}
		if !ended {
			return coded.Errorf("", "%w: the files of table %q of %s end at row %q", ErrDamaged, t.Name, m.Name,
				next)
		}
	}
	return nil
}

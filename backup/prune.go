package backup

import (
	"context"
	"slices"
	"time"
)

// Removal of backups that no restore within the retention needs.

// PruneOptions select the backups that may be removed.
type PruneOptions struct {
	// Keep is the retention: every timestamp of the last Keep that the location covers remains
	// restorable. The newest chain is always kept.
	Keep time.Duration
	Now  time.Time
	// Cluster and Tables select the backups: those of that cluster and of exactly these tables
	// (none: of all tables). An empty Cluster selects those of all clusters and tables, each kind
	// separately.
	Cluster string
	Tables  []string
}

// Prune removes the backups that the retention does not need, and returns their names: those of one
// cluster and set of tables together, the newest first. A chain is removed as a whole: it is needed
// until a younger full backup is at least as old as Keep. Unfinished and damaged backups are kept,
// and those whose full backup is missing.
//
// A crash leaves no backup without its ancestors: Prune removes the last backup of a chain first,
// and of each backup the manifest first. The next call removes the remains.
func Prune(ctx context.Context, l *Location, o PruneOptions) (removed []string, err error) {
	listed, err := l.List(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]*Manifest{}
	kinds := map[string][]*Manifest{} // by cluster and tables
	for _, b := range listed {
		if m := b.Manifest; m != nil && o.chooses(m) {
			byName[m.Name] = m
			kinds[m.kind()] = append(kinds[m.kind()], m)
		}
	}
	for _, kind := range kinds {
		oldest := oldestNeeded(kind, o.Now.Add(-o.Keep))
		for _, m := range slices.Backward(kind) {
			first := rootOf(m, byName)
			if first == nil || !first.Time.Before(oldest) {
				continue
			}
			if err := l.removeBackup(ctx, m.Name); err != nil {
				return removed, err
			}
			removed = append(removed, m.Name)
		}
	}
	return removed, l.removeLeftovers(ctx, listed)
}

// chooses reports whether the options select the backup.
func (o *PruneOptions) chooses(m *Manifest) bool {
	return o.Cluster == "" ||
		m.Cluster == o.Cluster && slices.Equal(chosen(m), sortedSet(o.Tables))
}

// kind returns a text that is equal for backups that may be increments of each other.
func (m *Manifest) kind() string {
	key := m.Cluster
	for _, name := range chosen(m) {
		key += "\x00" + name
	}
	return key
}

// oldestNeeded returns the time of the oldest full backup needed to restore any time since then
// that the backups, ordered from the oldest, cover. If none is as old as that, all are needed.
func oldestNeeded(backups []*Manifest, then time.Time) (oldest time.Time) {
	for _, m := range backups {
		if !m.Incremental() && !m.Time.After(then) && m.Time.After(oldest) {
			oldest = m.Time
		}
	}
	return oldest
}

// rootOf returns the full backup of a backup's chain, or nil if it is missing.
func rootOf(m *Manifest, byName map[string]*Manifest) *Manifest {
	for m != nil && m.Incremental() {
		m = byName[m.Parent]
	}
	return m
}

// removeBackup removes a complete backup, starting with the manifest, without which it is not a
// backup.
func (l *Location) removeBackup(ctx context.Context, name string) error {
	manifest := name + "/" + kindManifest
	if err := l.remove(ctx, []string{manifest}); err != nil {
		return err
	}
	objects, err := l.objects(ctx, name)
	if err != nil {
		return err
	}
	return l.remove(ctx, objects)
}

// removeLeftovers removes the remains of backups from an interrupted call: folders with neither a
// manifest nor the plan with which every backup starts.
func (l *Location) removeLeftovers(ctx context.Context, listed []Listed) error {
	for _, b := range listed {
		if b.Manifest != nil || b.Err != nil {
			continue
		}
		objects, err := l.objects(ctx, b.Name)
		if err != nil {
			return err
		}
		if slices.Contains(objects, b.Name+"/"+kindPlan) || slices.Contains(objects, b.Name+"/"+kindManifest) {
			continue
		}
		if err := l.remove(ctx, objects); err != nil {
			return err
		}
	}
	return nil
}

package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Observers in the catalogue: registering, controlling, retiring and forgetting them. Nodes
// register on the goroutine that starts them or links observers, operators control through the
// Admin service, and the back-fill actor on the node that leads meta forgets retired observers.
// Each change is a new version of the catalogue.

// Limits of an observer's entry: the highest limit of concurrent runs, and the bytes of its name.
const (
	maxObserverLimit = 1 << 16
	maxObserverName  = 255
)

// errRetiring reports that the name, or the only entry of the column, still belongs to an observer
// whose notifications are being removed.
var errRetiring = errors.New("meta: observer is being retired")

// Enter adds the observers that are missing in the catalogue, and returns the newest catalogue.
// Existing entries keep their settings. The first observer of a column has its notify entries at
// the observed cells, and each further one at its acknowledgments (own_entry; docs/adr/0065),
// which needs version.SeveralObservers. Enter rejects another kind for the same observer, or for
// another one of the column, and a name on two columns (design section 7). It does not wait for
// the tablets: after the next Sync, every change of the observers' columns leaves a notification
// for each of them.
//
// A retired observer that is entered again is a new one, once the remains of the old one have
// been removed: Enter waits for that until ctx ends, and then returns an error that names the
// observer.
func (obs *Observers) Enter(ctx context.Context,
	observers []*pb.ObserverInfo) (c *pb.Catalogue, err error) {
	var waited error
	err = retry(ctx, func() (bool, error) {
		c, err = obs.enter(ctx, observers)
		// The entry is removed after its notifications, in the background by the leader of meta:
		// retry until ctx ends.
		if errors.Is(err, errRetiring) {
			waited = err
			return false, nil
		}
		return true, err
	})
	// The context's error alone would not explain what it waited for.
	if err != nil && waited != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: wait until its notifications are removed: %w", waited, err)
	}
	return c, err
}

// enter is one attempt of Enter. It enters all of the observers or none.
func (obs *Observers) enter(ctx context.Context, observers []*pb.ObserverInfo) (*pb.Catalogue, error) {
	return obs.writeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		for _, o := range observers {
			if known, err := find(c, o); err != nil {
				return nil, err
			} else if known {
				continue
			}
			o := proto.CloneOf(o)
			if err := obs.join(ctx, c, o); err != nil {
				return nil, err
			}
			c.Observers = append(c.Observers, o)
		}
		return nil, nil
	})
}

// find reports whether the catalogue has the observer already, and rejects one that contradicts
// an entry.
func find(c *pb.Catalogue, o *pb.ObserverInfo) (known bool, err error) {
	if o.Name == "" || len(o.Name) > maxObserverName {
		return false, refuse(pb.Error_CODE_INVALID, "an observer's name must have 1 to %d bytes, not %d",
			maxObserverName, len(o.Name))
	}
	for _, have := range c.Observers {
		same := wire.ColumnOf(have) == wire.ColumnOf(o)
		switch {
		case have.Name != o.Name:
		// Checked first: the name of a retired entry may not be used, whatever else matches.
		case have.Retired:
			return false, retiring(have, o)
		case same && have.Weak == o.Weak:
			return true, nil
		case same:
			return false, refuse(pb.Error_CODE_INVALID,
				"observer %q is registered with the other kind (strong or weak)", o.Name)
		default:
			return false, refuse(pb.Error_CODE_INVALID,
				"observer %q observes %s.%q already; choose another name", o.Name, have.TableName,
				have.Column)
		}
	}
	return false, nil
}

// retiring refuses o until the retired observer's notifications are removed.
func retiring(retired, o *pb.ObserverInfo) error {
	return errors.Join(errRetiring, refuse(pb.Error_CODE_UNAVAILABLE,
		"observer %q of %s.%q is being retired, and its notifications are still being removed: "+
			"retry later, or do not register observer %q",
		retired.Name, retired.TableName, retired.Column, o.Name))
}

// Awaits reports whether a retired observer in the catalogue may keep the observer out until it is
// forgotten: one of its name or of its column.
func Awaits(c *pb.Catalogue, o *pb.ObserverInfo) bool {
	return slices.ContainsFunc(c.GetObservers(), func(have *pb.ObserverInfo) bool {
		return have.Retired && (have.Name == o.Name || wire.ColumnOf(have) == wire.ColumnOf(o))
	})
}

// maxSharing limits the observers of one column: each has a notification in the batch of every
// write.
const maxSharing = 64

// join prepares a new entry of a column with other observers: if another one has its notify entries
// at the observed cells, the new one gets separate entries. Retired observers count until they are
// forgotten: until then their entries may exist.
func (obs *Observers) join(ctx context.Context, c *pb.Catalogue, o *pb.ObserverInfo) error {
	var others, active []*pb.ObserverInfo
	for _, have := range c.Observers {
		if wire.ColumnOf(have) != wire.ColumnOf(o) {
			continue
		}
		others = append(others, have)
		if !have.Retired {
			active = append(active, have)
		}
		o.OwnEntry = o.OwnEntry || !have.OwnEntry
	}
	if len(others) == 0 {
		return nil
	}
	p, err := obs.policy.Read(ctx)
	if err != nil {
		return err
	}
	agreed := wire.Agreed(p.GetAgreed())
	several := agreed.Active >= version.SeveralObservers.Since
	for _, have := range active {
		switch {
		case have.Weak != o.Weak:
			return refuse(pb.Error_CODE_INVALID, "column %s.%q is observed by %q already, and observers of one "+
				"column are all strong or all weak", o.TableName, o.Column, have.Name)
		case !several:
			return refuse(pb.Error_CODE_INVALID, "column %s.%q is observed by %q already: %v", o.TableName,
				o.Column, have.Name, version.NotActive(version.SeveralObservers, agreed))
		}
	}
	if len(others) >= maxSharing {
		return refuse(pb.Error_CODE_INVALID, "column %s.%q has %d observers, as many as it may have",
			o.TableName, o.Column, len(others))
	}
	// If all observers of a weak column are retired, its intents are being removed. A new observer
	// must wait until then, because its own intents could be removed too. So must the observer of
	// any column while the cluster's version allows only one for each column.
	if len(active) == 0 && (o.Weak || others[0].Weak || !several) {
		return retiring(others[0], o)
	}
	return nil
}

// ControlObserver changes an observer's entry and waits until every tablet has applied it.
// Retiring is final: the entry is removed after its notifications (ForgetObserver), and until
// then it cannot be changed.
func (obs *Observers) ControlObserver(ctx context.Context,
	req *pb.ControlObserverRequest) (*pb.ObserverInfo, error) {
	if req.GetLimit() > maxObserverLimit {
		return nil, refuse(pb.Error_CODE_INVALID, "the limit of %d concurrent runs exceeds the maximum of %d",
			req.GetLimit(), maxObserverLimit)
	}
	var after *pb.ObserverInfo
	err := obs.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		o, err := observer(c, req.GetName())
		if err != nil {
			return nil, err
		}
		if o.Retired && (req.Paused != nil || req.Limit != nil) {
			return nil, refuse(pb.Error_CODE_INVALID, "observer %q is being retired", o.Name)
		}
		// Fields missing in the request keep their values.
		if req.Paused != nil {
			o.Paused = req.GetPaused()
		}
		if req.Limit != nil {
			o.Limit = req.GetLimit()
		}
		// Retiring is final, so the removed notifications are not needed again.
		o.Retired = o.Retired || req.GetRetire()
		after = proto.CloneOf(o)
		return nil, nil
	})
	return after, err
}

// observer returns the entry of that name. If there is none, the error lists the first few
// existing names.
func observer(c *pb.Catalogue, name string) (*pb.ObserverInfo, error) {
	const listed = 20
	names := make([]string, 0, len(c.Observers))
	for _, o := range c.Observers {
		if o.Name == name {
			return o, nil
		}
		names = append(names, fmt.Sprintf("%q", o.Name))
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), listed)], ", ")
	switch {
	case len(names) == 0:
		text = "none"
	case len(names) > listed:
		text += fmt.Sprintf(" and %d more", len(names)-listed)
	}
	return nil, refuse(pb.Error_CODE_INVALID, "there is no observer %q; there are: %s", name, text)
}

// ForgetObserver removes a retired observer from the catalogue, together with the record of its
// back-fill; its name and its notify entries can then be used again. The caller has removed its
// notifications after every tablet applied the retirement. An observer already removed is no error.
func (obs *Observers) ForgetObserver(ctx context.Context, name string) error {
	return obs.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		o, err := observer(c, name)
		// There is no such entry: an earlier call removed it.
		if _, ok := errors.AsType[*txn.ServerError](err); ok {
			return nil, nil
		}
		if !o.Retired {
			return nil, refuse(pb.Error_CODE_INVALID, "observer %q is not retired", name)
		}
		return obs.removeEntries(ctx, c, func(o *pb.ObserverInfo) bool { return o.Name == name })
	})
}

// removeEntries deletes the entries for which which returns true, and returns the changes that
// delete the records of their back-fills: a later observer of the same name must not inherit one.
func (obs *Observers) removeEntries(ctx context.Context, c *pb.Catalogue,
	which func(*pb.ObserverInfo) bool) ([]change, error) {
	var with []change
	for _, o := range c.Observers {
		if !which(o) {
			continue
		}
		old, err := obs.get(ctx, prefixBackfill+o.Name)
		if err != nil {
			return nil, err
		}
		if old != nil {
			with = append(with, change{row: prefixBackfill + o.Name, old: old})
		}
	}
	c.Observers = slices.DeleteFunc(c.Observers, which)
	return with, nil
}

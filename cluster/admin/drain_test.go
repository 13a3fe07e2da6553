package admin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/cluster/meta"
)

// TestForgetAfterAStop: a node that has just stopped is forgotten once meta's leader has recorded
// its absence; every other refusal is returned at once.
func TestForgetAfterAStop(t *testing.T) {
	notAway, inUse := fmt.Errorf("%w: 7", meta.ErrNotAway), fmt.Errorf("%w: 7", meta.ErrNodeInUse)
	for _, c := range []struct {
		name     string
		recorded time.Duration // when its absence is recorded
		then     error         // from then on
		want     error
		took     time.Duration // maximum
	}{
		{"recorded", 3 * time.Second, nil, nil, 3*time.Second + forgetPause},
		{"holds replicas", 0, inUse, inUse, 0},
		{"holds replicas when recorded", time.Second, inUse, inUse, time.Second + forgetPause},
		{"never", time.Hour, nil, notAway, forgetTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := retryUntilAway(context.Background(), func() error {
				if time.Since(began) < c.recorded {
					return notAway
				}
				return c.then
			})
			if !errors.Is(err, c.want) || time.Since(began) > c.took {
				t.Errorf("%s: %v after %v", c.name, err, time.Since(began))
			}
		})
	}
}

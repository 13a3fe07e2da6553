package node

import (
	"context"
	"errors"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestStamps: a tablet gets all timestamps that it requested or an error, and no part of them.
func TestStamps(t *testing.T) {
	failed := errors.New("no leader")
	for _, test := range []struct {
		got  int
		err  error
		want error
	}{{3, nil, nil}, {4, nil, nil}, {2, nil, errFewTimestamps}, {0, failed, failed}} {
		s := &tablets{life: t.Context(), ask: func(context.Context, int) (mvcc.Timestamp, int, error) {
			return 40, test.got, test.err
		}}
		var err error
		s.Timestamps(3, nil, func(_ mvcc.Timestamp, e error) { err = e })
		if s.asking.Wait(); !errors.Is(err, test.want) {
			t.Errorf("%d of 3 and %v: %v, want %v", test.got, test.err, err, test.want)
		}
	}
}

// TestStampsIntercepted: an interceptor sees each request, may fail it, and none is answered without it.
func TestStampsIntercepted(t *testing.T) {
	failed := errors.New("cut off")
	s := &tablets{
		life:      t.Context(),
		intercept: func(_ func(), fail func(error)) { fail(failed) },
	}
	if ts, ok := s.TimestampsNow(1); ok {
		t.Errorf("timestamp %d without the interceptor", ts)
	}
	var err error
	s.Timestamps(1, nil, func(_ mvcc.Timestamp, e error) { err = e })
	if s.asking.Wait(); !errors.Is(err, failed) {
		t.Errorf("%v, want %v", err, failed)
	}
}

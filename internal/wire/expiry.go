package wire

import (
	"fmt"
	"maps"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/version"
)

// Conversion of the expiry of tables.

// ExpiryPB converts after, the age for the columns that are not in the map columns, and the ages in
// this map, all rounded up to milliseconds. It returns nil if after is 0 and columns is empty, and
// an error for a negative age. Meta checks the other limits.
func ExpiryPB(after time.Duration, columns map[string]time.Duration) (*pb.TableExpiry, error) {
	if after == 0 && len(columns) == 0 {
		return nil, nil
	}
	ms, err := ageMillis(after)
	m := &pb.TableExpiry{AfterMs: ms}
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		if err == nil {
			ms, err = ageMillis(columns[name])
		}
		m.Columns = append(m.Columns, &pb.ColumnExpiry{Column: Bytes(name), AfterMs: ms})
	}
	return m, err
}

func ageMillis(age time.Duration) (uint64, error) {
	if age < 0 {
		return 0, fmt.Errorf("the age %s of an expiry is negative", age)
	}
	return uint64((age + time.Millisecond - 1) / time.Millisecond), nil
}

// Expiry is the inverse of ExpiryPB.
func Expiry(m *pb.TableExpiry) (after time.Duration, columns map[string]time.Duration) {
	for _, c := range m.GetColumns() {
		if columns == nil {
			columns = map[string]time.Duration{}
		}
		columns[String(c.Column)] = time.Duration(c.AfterMs) * time.Millisecond
	}
	return time.Duration(m.GetAfterMs()) * time.Millisecond, columns
}

// ExpiryActive returns an error that states the remedy if, by the cluster's policy, some nodes may
// run a build without expiry.
func ExpiryActive(p *pb.Policy) error {
	if agreed := Agreed(p.GetAgreed()); agreed.Active < version.Expiry.Since {
		return version.NotActive(version.Expiry, agreed)
	}
	return nil
}

package inspect

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Pages of an observer's parked notifications. Finding them scans all notifications, including
// waiting ones, so the scan is bounded too.

const (
	pageParked   = 50
	walkedParked = 20_000 // maximum number of notifications scanned for a page
)

// ParkedPage is a page of parked notifications, in row order.
type ParkedPage struct {
	At     uint64       `json:"at_ts"` // the oracle's time when they were read
	Parked []ParkedRow  `json:"parked"`
	More   bool         `json:"more"` // there may be more after Last
	Last   pbjson.Bytes `json:"last"` // the last scanned row
}

// ParkedRow is the parked notification of one row.
type ParkedRow struct {
	Row      pbjson.Bytes `json:"row"`
	Attempts uint32       `json:"attempts"` // runs that failed
	TS       uint64       `json:"ts"`       // of the change
	ParkedTS uint64       `json:"parked_ts"`
	Error    string       `json:"error"` // of the last run, at most 1 KiB
}

// ReadParked returns a page of an observer's parked notifications of rows after after; nil means
// from the first. An empty page may still set More.
func ReadParked(ctx context.Context, client *txn.Client, of *pb.ObserverInfo,
	after *string) (*ParkedPage, error) {
	at, err := client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	from := ""
	if after != nil {
		from = *after + "\x00"
	}
	out, walked := &ParkedPage{At: uint64(at), Parked: []ParkedRow{}}, 0
	for e, err := range client.WalkFrom(ctx, mvcc.GroupNotify, wire.NotifyColumn(of), from) {
		if err != nil {
			return nil, err
		}
		if len(out.Parked) == pageParked || walked == walkedParked {
			out.More = true
			break
		}
		walked++
		out.Last = pbjson.Bytes(e.GetCell().GetRow())
		n := e.GetNotify()
		if n.GetParkedTs() == 0 {
			continue
		}
		out.Parked = append(out.Parked, ParkedRow{
			Row: out.Last, Attempts: n.GetAttempts(), TS: n.GetTs(), ParkedTS: n.GetParkedTs(),
			Error: n.GetError(),
		})
	}
	return out, nil
}

// ReadObserver returns the observer with the name from the catalogue.
func ReadObserver(ctx context.Context, client *txn.Client, name string) (*pb.ObserverInfo, error) {
	catalogue, err := client.Transport().Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	if o := FindObserver(catalogue, name); o != nil {
		return o, nil
	}
	return nil, NoObserver(name)
}

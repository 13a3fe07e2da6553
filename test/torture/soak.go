package main

import (
	"context"
	"fmt"

	"github.com/percolator-go/percolator/test/torture/soak"
)

// soak returns the options of the soak run.
func (a *arena) soak() soak.Options {
	o := a.o.soak
	o.Duration = a.o.duration
	return o
}

// soaked runs the load of the fault "soak", which also injects all faults.
func soaked(ctx context.Context, a *arena) (Counts, error) {
	r, err := soak.Run(ctx, soak.Target{
		Cluster: a.c, DB: a.db, Rand: a.rng, Log: a.log,
		KillClient: func(ctx context.Context) error { return killClient(ctx, a) },
	}, a.soak())
	fmt.Print(r.Text)
	a.strikes = r.Strikes
	return Counts{Done: uint64(r.Writes), Unknown: uint64(r.Unknown)}, err
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	percolator "github.com/percolator-go/percolator"
)

// pairKeys is how many pairs there are: few, so that the dead clients' locks are met.
const pairKeys = 64

// doomedClient writes pairs in two-phase commits until it is killed. Whatever is left of
// it must be all or nothing.
func doomedClient(o order) error {
	ctx := context.Background()
	db, err := percolator.Dial(ctx, []string{o.Client},
		percolator.ClientConfig{Insecure: true, LockTTL: lockTTL})
	if err != nil {
		return err
	}
	loader := db.Loader(percolator.LoaderConfig{Workers: 8})
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	fmt.Println("ready")
	for i := 0; ; i++ {
		key, value := strconv.Itoa(rng.IntN(pairKeys)), []byte(fmt.Sprint(o.Seed, " ", i))
		err := loader.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("a/"+key, half, value)
			tx.Set("z/"+key, half, value)
			return nil
		})
		if err != nil {
			return err
		}
	}
}

package main

import "slices"

// properties names for every patch in testdata/broken the test and assertion that must fail, in one
// file (table_*.go) for each group of packages. The slowest ones are first, so that the others run
// concurrently.
var properties = slices.Concat(slowest, ofStores, ofTablets, ofTransactions, ofObservers, ofClusters,
	ofNodes, ofBackups)

// slowest are the broken builds whose tests take longest.
var slowest = []property{
	{tag: "sweep_own_targets", pkg: "node", test: "^TestSweptWithoutItsObserver$/^not_linked$",
		assertion: "UNSWEPT: .*"},
	{tag: "no_sync", pkg: "test/crash", test: "^TestPowerLossLosesNothingAcknowledged$",
		assertion: "acknowledged cells of [0-9]+ transactions are gone|no such table|node did not come up|bank: the accounts hold|log is damaged"},
}

package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// The tables of the node's store, which Badger keeps in levels. Badger tells nobody of
// compactions and stalls but its log: the store counts the lines that it writes about
// them (store/logger.go), so these two count from the process's start.
var (
	storeTables = gaugeFamily("store_tables", "Tables of a level of the state.", "level")
	storeBytes  = gaugeFamily("store_table_bytes",
		"Bytes of the tables of a level of the state.", "level")
	storeCompactions = counterFamily("store_compactions_total", "Compactions done.")
	storeStalled     = gaugeFamily("store_stalled",
		"1 while writes wait for compactions to make level 0 smaller.")
	storeStalls = counterFamily("store_stalls_total",
		"How often writes have waited for compactions for more than a second.")
	storeFiles = gaugeFamily("store_files_free",
		"Files that the store can still create, by what limits them; below 512 writes are refused.",
		"resource")
)

// collectStore exports figures of the store's tables. It takes the locks of Badger's
// levels for a moment, which compactions take as well.
func (m exporter) collectStore(out chan<- prometheus.Metric) {
	trees := m.status.store.Trees()
	for i, l := range trees.Levels {
		send(out, storeTables, l.Tables, strconv.Itoa(i))
		send(out, storeBytes, l.Bytes, strconv.Itoa(i))
	}
	send(out, storeCompactions, trees.Compactions)
	send(out, storeStalled, oneIf(trees.Stalled))
	send(out, storeStalls, trees.Stalls)
	for what, n := range m.status.store.FreeFiles() {
		send(out, storeFiles, n, string(what))
	}
}

// Package recent keeps what a node remembers of its last hour, in memory and bounded: figures
// every ten seconds (Points), and what each tablet that it led has done in each minute (Heat).
// It also puts together what several nodes remember, for whoever looks at the whole cluster.
//
// It asks nobody and has no goroutine: package node adds to it and answers with it. A restart
// forgets all.
package recent

// Package sicheck decides whether a history of list-append transactions is snapshot isolated.
//
// A transaction appends values to lists and reads whole lists; each value is appended
// once in the history. That makes the order of a key's versions readable: the longest
// list that anybody read is the order of all appends before its end, and every other read
// must be a prefix of it.
//
// Each committed transaction has a begin and a commit in a graph of what must have come
// before what:
//
//   - its begin comes before its commit;
//   - WR: T2 read what T1 wrote: commit(T1) → begin(T2);
//   - WW: T1 wrote the version before T2's: commit(T1) → begin(T2), for under snapshot
//     isolation two transactions that write one key never run at the same time;
//   - RW: T1 read a version that T2 overwrote: begin(T1) → commit(T2);
//   - real time: T1 had been answered before T2 was begun: commit(T1) → begin(T2).
//
// The history is (strongly) snapshot isolated if and only if the graph has no cycle.
// Write skew is two RW edges that make none, so it is allowed. Besides cycles, single
// reads are checked: see Anomaly. The construction with begins and commits is that of
// Zhang et al., "Viper: A Fast Snapshot Isolation Checker" (EuroSys 2023); reading
// version orders out of lists is that of Kingsbury and Alvaro, "Elle" (VLDB 2020).
//
// A transaction whose outcome is unknown counts as committed, with no end, once anybody
// has read one of its appends; else it is left out, with its reads.
//
// Check is a pure function: tests call it with what their clients saw.
package sicheck

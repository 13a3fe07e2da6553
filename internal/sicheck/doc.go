// Package sicheck decides whether a history of list-append transactions is snapshot isolated.
//
// A transaction appends values to lists and reads whole lists; each value is appended once in the
// history. This exposes the order of a key's versions: the longest list read contains the appends in
// order, and every other read must be a prefix of it.
//
// Each committed transaction has a begin and a commit node in a precedence graph:
//
//   - its begin precedes its commit;
//   - WR: T2 read what T1 wrote: commit(T1) → begin(T2);
//   - WW: T1 wrote the version before T2's: commit(T1) → begin(T2), for under snapshot
//     isolation two transactions that write one key never run at the same time;
//   - RW: T1 read a version that T2 overwrote: begin(T1) → commit(T2);
//   - real time: T1 ended before T2 began: commit(T1) → begin(T2).
//
// The history is (strongly) snapshot isolated if and only if the graph has no cycle.
// Write skew is two RW edges that form no cycle, so it is allowed. Single reads are checked too: see
// Anomaly. The graph of begins and commits is that of Zhang et al., "Viper: A Fast Snapshot Isolation
// Checker" (EuroSys 2023); inferring version orders from lists is that of Kingsbury and Alvaro, "Elle"
// (VLDB 2020).
//
// A transaction with an unknown outcome counts as committed, without an end, if a transaction that
// counts read one of its appends; otherwise it is omitted, with its reads.
//
// Check is a pure function. Tests call it with their clients' histories.
package sicheck

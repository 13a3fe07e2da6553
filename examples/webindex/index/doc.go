// Package index is the web index's observers (§2.4, §3.1): load, process, rank, cluster,
// invert, publish. See package schema for the tables and for what the index says; it
// depends on the pages alone, not on the order of their arrival.
//
//	pages.raw ──▶ process ──▶ pages.links ──▶ invert ──▶ anchors ╌╌▶ publish ──▶ pages.doc
//	                ╎  ╎                        ▲                    ▲    ╎
//	                ╎  ╎                     reinvert                ╎    ╎
//	                ╎  ▼                        ╎                    ╎    ╎
//	                ╎ refile, resolve ──▶ pages.canon ──▶ relink     ╎    ╎
//	                ╎    ▲                                           ╎    ╎
//	                ╎  announce ◀── clusters.elected ◀── elect ◀╌╌╌╌╌╎╌╌╌╌╯
//	                ▼                                                ╎
//	              rank ╌╌▶ rank of the targets ╌╌▶ … ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╯
//
// Notifications drawn with a dashed line are weak, the others strong. Not drawn: resolve
// has elect run when members come and go, process and resolve have publish run. Where
// many pages meet, at a cluster of duplicates or at a page that everybody links to,
// notifications are weak, so that loading those pages at once conflicts on nothing.
// Observers at such places run on few workers: they lag behind, and what is notified
// meanwhile collapses into one run.
//
// Under snapshot isolation two transactions that read what the other writes may both
// commit (write skew). The rules that make the index right all the same, and that every
// observer here must keep:
//
//  1. One writer. Every derived cell belongs to one row of one observer (process U, resolve T, elect K, …), and each of
//     its runs writes at least one cell of its own always, changed or not: of two concurrent runs on stale and on fresh
//     inputs only one commits, and the later one started after it. Strong observers have their acknowledgment for that.
//  2. Register, then read. Who derives something from a foreign cell is registered where its changes are looked up (a
//     row of links, stubs or members) by an *earlier* transaction than the one that reads the cell.
//  3. Change, then look up. Who changes a cell has those who depend on it looked up by a *later* transaction than the
//     one that changed it.
//
// By 2 and 3, of a registration and a change that are concurrent, one sees the other.
// Where a rule is bent, the code says why it may be.
package index

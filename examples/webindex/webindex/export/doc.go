// Package export keeps a full-text index outside of the repository (Bleve) equal to the
// web index inside of it: one entry per canonical page, with its title, text, anchor
// texts and rank.
//
// It is a user of recipes/export: an observer of pages.doc (see package schema) reads the
// pages that have changed, a batch at a time, gives them to the exporter, and returns when
// they are on the disk of the full-text index; only then does the framework acknowledge. The
// observer has no effect that may not be repeated: what it gives is a version, and the index
// keeps the newest.
//
//	pages.doc ──▶ export: batches ──▶ Bleve, synced ──▶ acknowledgment
//
// Invariants:
//  1. A version is the commit timestamp of the doc cell, and a document is a function of (URL, version): what is read is
//     compared with the digests in the cell, and a page that has moved on since is not exported but read again.
//  2. The version is stored in the entry itself, so in the same batch as the document. Of one URL only a greater version
//     replaces an entry: a repeated or a late export changes nothing (effectively once, in order per page).
//  3. A page that is no longer canonical leaves a tombstone with its version, so that a late export can't revive it.
//     Tombstones are dropped when the exporter starts: exports of earlier processes ended with them, and every export
//     from then on is of a newer state.
//  4. An export is answered when the batch that holds it is durable, and an export that is dropped because the index
//     has it already when that entry is durable. After a failed batch, whose entries Bleve may show all the same,
//     nothing is answered before another batch is durable.
//  5. Everything is bounded: the documents of a batch, of which there is one at a time, the anchor texts of a document.
//     What waits are notifications, so exports lag and collapse instead of piling up.
//
// What happens when the process is killed: before the batch is durable, the notification
// is still there, and the page is exported again; after it, but before the
// acknowledgment, it is exported again too and recognised by its version. When the index
// is lost as a whole, Start fills a new one from the repository.
//
// A batch of Bleve returns once its segments and its root have been synced (its option
// unsafe_batch is off).
//
// The command webindex starts and closes the exporter; package search reads the index.
package export

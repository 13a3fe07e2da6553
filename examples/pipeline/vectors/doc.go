// Package vectors is the vector index of the example: a service over HTTP with a file of its own.
//
// POST /apply stores changes, durable when it answers. POST /drop drops tombstones. POST /search
// finds the entries nearest to a vector. GET /entries lists all entries and tombstones.
//
// Invariants:
//  1. Of one ID the entry with the greatest version is kept. A deletion leaves a tombstone, so that a
//     late change of an older version does not bring the entry back.
//  2. Drop(horizon) drops the tombstones whose version is less than horizon. From then on, a change
//     that was read before horizon is refused: its reader may not have seen the deletion, and must
//     read again. A change read at or after horizon has seen every deletion before it.
//  3. Whatever was answered, horizon included, is in the file. An unfinished line at its end was not
//     answered.
//  4. After an error of the file nothing is stored until the index is opened again.
package vectors
